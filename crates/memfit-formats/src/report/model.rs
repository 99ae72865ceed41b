//! The data of a report.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Nanos, Place};

use crate::brief;

/// Number of a name in [`Names`].
pub type NameId = u32;

/// Strings of which many are equal. Name 0 is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    names: Vec<String>,
    known: BTreeMap<String, NameId>,
}

impl Default for Names {
    fn default() -> Names {
        Names { names: vec![String::new()], known: [(String::new(), 0)].into() }
    }
}

impl Names {
    /// The number of `name`, which is cut and cleaned: see [`shown_name`].
    pub fn id(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.known.get(name) {
            return id;
        }
        let Ok(id) = NameId::try_from(self.names.len()) else { return 0 };
        self.names.push(shown_name(name));
        self.known.insert(name.to_owned(), id);
        id
    }

    /// The name with this number; empty for a number that is none.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        self.names.get(id as usize).map_or("", String::as_str)
    }
}

/// The most characters of a name that are shown.
const LONGEST: usize = 240;

/// `name` as it may be shown: no control characters, none that change the direction of what follows, and not without end.
#[must_use]
pub fn shown_name(name: &str) -> String {
    brief(name, LONGEST)
}

/// What a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A plan: what will happen.
    #[default]
    Plan,
    /// A step as it ran.
    Step,
    /// A snapshot of PyTorch's CUDA allocator.
    Snapshot,
    /// Figures of a training alone.
    Figures,
}

impl Kind {
    /// As pages name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plan => "plan",
            Kind::Step => "step",
            Kind::Snapshot => "snapshot",
            Kind::Figures => "training",
        }
    }
}

/// What instants are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// Steps of a program.
    #[default]
    Steps,
    /// Events of an allocator.
    Events,
    /// Moments at which something comes or goes, of a program on several lanes: its steps have no one order in time.
    Moments,
}

impl Axis {
    /// As pages name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Axis::Steps => "step",
            Axis::Events => "event",
            Axis::Moments => "moment",
        }
    }
}

/// Index of a step or an event; stays are half-open ranges of them.
pub type Instant = usize;

/// One stay of something in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// What it is.
    pub name: NameId,
    /// What it is for.
    pub role: NameId,
    /// Where in the model it belongs.
    pub module: NameId,
    /// `f32[32, 64]`, or empty.
    pub shape: NameId,
    /// What made it: an op, or the frame that asked for it; empty for what is there from the start.
    pub made_by: NameId,
    /// Its bytes.
    pub bytes: Bytes,
    /// The same as the device counts them: rounded up to the alignment.
    pub size: Bytes,
    /// Where it lies, if that is known.
    pub place: Option<Place>,
    /// First instant at which it is there.
    pub from: Instant,
    /// First instant at which it is gone; at most [`Report::instants`].
    pub until: Instant,
}

/// What a lane does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SliceKind {
    /// Runs an op of the forward pass for the first time.
    Forward,
    /// The same of the backward pass.
    Backward,
    /// The same of the update.
    Update,
    /// Runs an op again.
    Recompute,
    /// Encodes a value.
    Encode,
    /// Decodes one.
    Decode,
    /// Carries a value out of the device.
    Out,
    /// Carries one back.
    In,
    /// Waits for a transfer or another lane.
    Stall,
}

impl SliceKind {
    /// Every kind with its name.
    pub const ALL: [(SliceKind, &str); 9] = [
        (SliceKind::Forward, "forward"),
        (SliceKind::Backward, "backward"),
        (SliceKind::Update, "update"),
        (SliceKind::Recompute, "run again"),
        (SliceKind::Encode, "encode"),
        (SliceKind::Decode, "decode"),
        (SliceKind::Out, "copy out"),
        (SliceKind::In, "copy in"),
        (SliceKind::Stall, "wait"),
    ];

    /// Position in [`SliceKind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As pages and traces name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        SliceKind::ALL[self.index()].1
    }
}

/// A time in which a lane does one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index in [`Report::lanes`].
    pub lane: usize,
    /// What it does.
    pub kind: SliceKind,
    /// With what.
    pub name: NameId,
    /// From the start of the step.
    pub start: Nanos,
    /// For how long.
    pub time: Nanos,
    /// Bytes that are carried or encoded.
    pub bytes: Bytes,
}

/// A row of the timeline: a stream of ops, or one direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Its name.
    pub name: String,
}

/// A line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Points, by x.
    pub points: Vec<(f64, f64)>,
}

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    #[default]
    Bytes,
    /// Nanoseconds.
    Nanos,
    /// A ratio: 0.1 is `+10 %`.
    Change,
    /// Things.
    Count,
}

impl Unit {
    /// As files name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Nanos => "ns",
            Unit::Change => "change",
            Unit::Count => "count",
        }
    }
}

/// A figure, or a text where there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A number.
    Number(f64, Unit),
    /// Words.
    Text(String),
}

impl Figure {
    /// A size.
    #[must_use]
    pub fn bytes(bytes: Bytes) -> Figure {
        Figure::Number(bytes.0 as f64, Unit::Bytes)
    }

    /// A time.
    #[must_use]
    pub fn nanos(time: Nanos) -> Figure {
        Figure::Number(time.0 as f64, Unit::Nanos)
    }

    /// Words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Figure {
        Figure::Text(text.into())
    }
}

/// A table: the first column names the row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Heads of the columns.
    pub head: Vec<String>,
    /// As many cells as there are heads.
    pub rows: Vec<Vec<Figure>>,
}

/// All that is shown of one step, or of one snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it is about.
    pub kind: Kind,
    /// Name of the model or file.
    pub title: String,
    /// Large figures at the top: name, value, and a few words.
    pub cards: Vec<(String, Figure, String)>,
    /// Small print: name and value.
    pub facts: Vec<(String, String)>,
    /// What a reader must know before believing a figure.
    pub notes: Vec<String>,
    /// Levels that are drawn across the memory: name and bytes.
    pub levels: Vec<(String, Bytes)>,
    /// What instants are.
    pub axis: Axis,
    /// Number of instants.
    pub instants: usize,
    /// When each instant begins, and when the last one ends; never falling. Empty where only the order is known.
    pub times: Vec<Nanos>,
    /// Every name of stays and slices.
    pub names: Names,
    /// All stays in memory.
    pub stays: Vec<Stay>,
    /// Rows of the timeline.
    pub lanes: Vec<Lane>,
    /// What they do.
    pub slices: Vec<Slice>,
    /// Live bytes without memfit: ns (or instants where there are no times), and bytes.
    pub before: Option<Curve>,
    /// The step without memfit beside this one.
    pub compared: Table,
    /// What each means would give.
    pub what_if: Table,
    /// What each budget costs: bytes and ns.
    pub front: Vec<Curve>,
    /// Losses by step.
    pub losses: Vec<Curve>,
}

impl Report {
    /// Live bytes at each instant, by role in the order of the first stay that has it.
    #[must_use]
    pub fn live_by_role(&self) -> Vec<(NameId, Vec<Bytes>)> {
        let mut changes: Vec<(NameId, Vec<(Bytes, Bytes)>)> = Vec::new();
        for stay in self.stays.iter().filter(|stay| stay.from < stay.until) {
            let at = changes.iter().position(|(role, _)| *role == stay.role).unwrap_or_else(|| {
                changes.push((stay.role, vec![Default::default(); self.instants + 1]));
                changes.len() - 1
            });
            changes[at].1[stay.from.min(self.instants)].0 += stay.size;
            changes[at].1[stay.until.min(self.instants)].1 += stay.size;
        }
        let sums = |changes: Vec<(Bytes, Bytes)>| {
            let mut now = Bytes::ZERO;
            let live = changes.iter().take(self.instants).map(|&(born, gone)| {
                now = now.saturating_sub(gone) + born;
                now
            });
            live.collect()
        };
        changes.into_iter().map(|(role, changes)| (role, sums(changes))).collect()
    }

    /// Live bytes at each instant.
    #[must_use]
    pub fn live(&self) -> Vec<Bytes> {
        let mut live = vec![Bytes::ZERO; self.instants];
        for (_, part) in self.live_by_role() {
            live.iter_mut().zip(part).for_each(|(sum, bytes)| *sum += bytes);
        }
        live
    }

    /// Time at which an instant begins; where there are no times a microsecond each.
    #[must_use]
    pub fn time_of(&self, instant: Instant) -> Nanos {
        match self.times.get(instant.min(self.instants)) {
            Some(&time) => time,
            None => Nanos((instant as u64).saturating_mul(1000)),
        }
    }
}
