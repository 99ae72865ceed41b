//! What a placer sees: sizes and lifetimes, nothing of ops and values.

use memfit_ir::{Bank, Bytes, Content, Csr, Graph, Layout, Lifespan, Limits, Pin, Place, Program};

/// Something that needs one address for its whole lifetime: a buffer, or a chain of buffers that take over
/// each other's bytes in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// First time at which it is live.
    pub from: u32,
    /// First time at which it is gone: live on the half-open range `[from, until)`.
    pub until: u32,
    /// Bytes.
    pub size: Bytes,
    /// Demanded address.
    pub pin: Option<Pin>,
}

impl Item {
    /// Whether both are live at some time. Items with an empty lifetime meet nothing.
    #[must_use]
    pub fn meets(&self, other: &Item) -> bool {
        self.from < other.until
            && other.from < self.until
            && self.from < self.until
            && other.from < other.until
    }
}

/// What items must keep to so that ops on parallel lanes stay unordered. Empty where one lane runs all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lanes {
    /// For each item, ascending, the items it must not share bytes with although their lifetimes do not
    /// meet. Symmetric. No rows at all: none.
    pub apart: Csr<u32>,
    /// For each item the colours of the op that defines it and of the op that ends it, for a planner that
    /// shares within colours. Empty: no colours.
    pub colours: Vec<(u16, u16)>,
}

/// An instance of dynamic storage allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// What needs a place.
    pub items: Vec<Item>,
    /// Where places are. Never empty. An item without a pin may go to any bank; bank 0 is filled first.
    pub banks: Vec<Bank>,
    /// What keeps items apart besides their lifetimes.
    pub lanes: Lanes,
}

impl Problem {
    /// The problem of placing `items` in `banks` for a single lane.
    #[must_use]
    pub fn new(items: Vec<Item>, banks: Vec<Bank>) -> Problem {
        Problem { items, banks, lanes: Lanes::default() }
    }

    /// The problem of placing `program`: one item for each in-place chain, and for each buffer the index of
    /// its item.
    #[must_use]
    pub fn of(graph: &Graph, program: &Program, limits: &Limits) -> (Problem, Vec<usize>) {
        let roots = program.chain_roots();
        let spans = program.lifespans();
        let time = |step: usize| u32::try_from(step).unwrap_or(u32::MAX);
        let mut items: Vec<Item> = Vec::new();
        let mut item_of: Vec<usize> = Vec::with_capacity(program.buffers.len());
        for (index, buffer) in program.buffers.iter().enumerate() {
            let Lifespan { from, until } = spans[index];
            // Where nothing runs, what is there is there at once.
            let until = if program.steps.is_empty() { 1 } else { until };
            let pin = match buffer.content {
                Content::Value(value) if value.index() < graph.value_count() => graph.value(value).pin,
                _ => None,
            };
            if roots[index].index() == index {
                item_of.push(items.len());
                items.push(Item { from: time(from), until: time(until), size: buffer.size, pin });
            } else {
                let item = item_of[roots[index].index()];
                item_of.push(item);
                items[item].from = items[item].from.min(time(from));
                items[item].until = items[item].until.max(time(until));
                items[item].pin = items[item].pin.or(pin);
            }
        }
        (Problem::new(items, limits.banks.clone()), item_of)
    }

    /// The layout of the program whose buffers map to items as `item_of` says.
    #[must_use]
    pub fn layout(places: &[Place], item_of: &[usize]) -> Layout {
        Layout { places: item_of.iter().map(|&item| places.get(item).copied().unwrap_or_default()).collect() }
    }

    /// Alignment of bank 0.
    #[must_use]
    pub fn align(&self) -> Bytes {
        self.banks.first().map_or(Bytes(1), |bank| bank.align)
    }

    /// The largest sum of live sizes, each rounded up to the alignment: no single bank can do with less.
    /// Time O(n log n).
    #[must_use]
    pub fn lower_bound(&self) -> Bytes {
        let align = self.align();
        let mut events: Vec<(u32, bool, u64)> = Vec::with_capacity(self.items.len() * 2);
        for item in self.items.iter().filter(|item| item.from < item.until) {
            let size = item.size.round_up(align).0;
            events.push((item.from, true, size));
            events.push((item.until, false, size)); // `false` sorts first: gone before others are born.
        }
        events.sort_unstable();
        let (mut now, mut most) = (0u64, 0u64);
        for (_, born, size) in events {
            now = if born { now.saturating_add(size) } else { now.saturating_sub(size) };
            most = most.max(now);
        }
        Bytes(most)
    }

    /// Sum of all sizes, each rounded up to the alignment: what no sharing at all would take.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.items.iter().map(|item| item.size.round_up(self.align())).sum()
    }

    /// Highest end of an item in bank 0, rounded up to the alignment.
    #[must_use]
    pub fn height(&self, places: &[Place]) -> Bytes {
        let ends = self.items.iter().zip(places).filter(|(_, place)| place.bank == 0);
        ends.map(|(item, place)| place.offset + item.size).max().unwrap_or_default().round_up(self.align())
    }
}
