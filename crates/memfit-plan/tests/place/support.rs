//! Generators of problems, a validator and a brute force, independent of the crate's own.

use std::collections::BTreeMap;

use memfit_ir::{Bank, Bytes, Device, Dtype, Limits, Link, Nanos, Pin};
use memfit_plan::place::{Item, Placement, Problem};

/// xorshift64 (13, 7, 17).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    pub(crate) fn below32(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(u64::from(limit))).unwrap()
    }
}

pub(crate) fn device() -> Device {
    let link = Link {
        out_bandwidth: 1e10,
        in_bandwidth: 1e10,
        duplex_cap: 2e10,
        latency: Nanos(0),
        asynchronous: true,
    };
    Device {
        name: "test".into(),
        memory: Bytes(1 << 40),
        align: Bytes(1),
        flops: vec![(Dtype::F32, 1e12)],
        bandwidth: 1e11,
        efficiency: (1.0, 1.0),
        launch: Nanos(0),
        copy: None,
        codecs: Vec::new(),
        link: Some(link),
        host_memory: Bytes(1 << 40),
        disk: None,
    }
}

pub(crate) fn item(from: u32, until: u32, size: u64) -> Item {
    Item { from, until, size: Bytes(size), pin: None }
}

pub(crate) fn problem(items: Vec<Item>, align: u64) -> Problem {
    Problem::new(items, Limits::arena(Bytes::MAX, Bytes(align)).banks)
}

pub(crate) fn bank(capacity: u64, align: u64) -> Bank {
    Bank { name: "bank".into(), capacity: Bytes(capacity), align: Bytes(align) }
}

pub(crate) fn pinned(bank: u16, offset: Option<u64>) -> Option<Pin> {
    Some(Pin { bank, offset: offset.map(Bytes) })
}

/// Reads `id,lower,upper,size`.
pub(crate) fn from_csv(text: &str) -> Problem {
    let row = |line: &str| {
        let cells: Vec<u64> = line.split(',').skip(1).map(|cell| cell.parse().unwrap()).collect();
        item(u32::try_from(cells[0]).unwrap(), u32::try_from(cells[1]).unwrap(), cells[2])
    };
    problem(text.lines().skip(1).filter(|line| !line.is_empty()).map(row).collect(), 1)
}

/// `items` random items, among them now and then one without bytes or without a lifetime.
pub(crate) fn random(random: &mut Random, items: u64, align: u64) -> Problem {
    let span = 1 + random.below32(20);
    let most = 1 + random.below(40);
    let items = (0..items).map(|_| {
        let from = random.below32(span);
        let until = from + random.below32(span - from + 2);
        item(from, until, random.below(most + 1))
    });
    problem(items.collect(), align)
}

/// Training-like: long-lived mass that is freed in the reverse order of birth, and short-lived others.
pub(crate) fn synth(n: u32, seed: u64) -> Problem {
    let mut random = Random(seed);
    let mut items = Vec::new();
    for i in 0..n {
        let (r, e) = (random.next() % 100, random.next() % 16);
        let base = 1u64 << (9 + e);
        let size = (base + random.next() % base).next_multiple_of(512);
        let until = if r < 6 && i < n / 2 {
            n - i
        } else {
            (i + 1 + u32::try_from(random.next() % 8).unwrap()).min(n + 8)
        };
        items.push(item(i, until.max(i + 1), size));
    }
    problem(items, 1)
}

/// A piece of a rectangle: from and until, lowest and highest, half-open.
type Cut = (u64, u64, u64, u64);

/// Random guillotine cuts of a rectangle of so many steps × so high into `n` pieces.
fn dissected(random: &mut Random, n: u32, (steps, height): (u64, u64)) -> Vec<Cut> {
    let mut pieces: Vec<Cut> = vec![(0, steps, 0, height)];
    let area = |p: &Cut| u128::from(p.1 - p.0) * u128::from(p.3 - p.2);
    while pieces.len() < n as usize {
        let draw = |random: &mut Random| usize::try_from(random.next() % pieces.len() as u64).unwrap();
        let (one, other) = (draw(random), draw(random));
        let at = if area(&pieces[one]) >= area(&pieces[other]) { one } else { other };
        let (left, right, low, high) = pieces[at];
        let upright = random.next().is_multiple_of(2);
        if right - left > 1 && (upright || high - low == 1) {
            let middle = left + 1 + random.next() % (right - left - 1);
            pieces[at] = (left, middle, low, high);
            pieces.push((middle, right, low, high));
        } else if high - low > 1 {
            let middle = low + 1 + random.next() % (high - low - 1);
            pieces[at] = (left, right, low, middle);
            pieces.push((left, right, middle, high));
        }
    }
    pieces
}

/// Buffers that live as long as the pieces and are as large as they are high, in units of 512 bytes.
fn buffers(pieces: &[Cut]) -> Problem {
    let narrow = |time: u64| u32::try_from(time).unwrap();
    let buffer = |&(left, right, low, high): &Cut| item(narrow(left), narrow(right), (high - low) * 512);
    problem(pieces.iter().map(buffer).collect(), 1)
}

/// Random guillotine cuts of a rectangle of `4n` steps × 2^36 bytes, each piece dropped with a probability
/// of `drop` percent: the optimum is 2^36 without drops and at most 2^36 with them.
pub(crate) fn cut(n: u32, seed: u64, drop: u64) -> Problem {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut pieces = dissected(&mut random, n, (4 * u64::from(n), (1 << 36) / 512));
    pieces.retain(|_| random.next() % 100 >= drop);
    buffers(&pieces)
}

/// As [`cut`], of 1,024 steps, but no piece that is live at one of them is dropped: the optimum is the bound, and is returned.
pub(crate) fn tight(n: u32, seed: u64, drop: u64) -> (Problem, Bytes) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut pieces = dissected(&mut random, n, (1024, 1024));
    let full = random.next() % 1024;
    pieces.retain(|&(left, right, ..)| (left..right).contains(&full) || random.next() % 100 >= drop);
    (buffers(&pieces), Bytes(1024 * 512))
}

/// Checks a placement pair by pair, and its figures. Says what is wrong.
pub(crate) fn check(problem: &Problem, placement: &Placement) -> Result<(), String> {
    let places = &placement.places;
    if places.len() != problem.items.len() {
        return Err(format!("{} places for {} items", places.len(), problem.items.len()));
    }
    let mut height = 0;
    for (index, (item, place)) in problem.items.iter().zip(places).enumerate() {
        let bank = problem.banks.get(usize::from(place.bank)).ok_or(format!("item {index}: no such bank"))?;
        let end = place.offset.0.checked_add(item.size.0).ok_or(format!("item {index}: wraps"))?;
        if !place.offset.0.is_multiple_of(bank.align.0) {
            return Err(format!("item {index} at {} is not aligned", place.offset.0));
        }
        if problem.banks.len() > 1 && end > bank.capacity.0 && item.from < item.until && item.size.0 > 0 {
            return Err(format!("item {index} ends at {end} above its bank"));
        }
        if let Some(pin) = item.pin
            && (pin.bank != place.bank || pin.offset.is_some_and(|offset| offset != place.offset))
        {
            return Err(format!("item {index} is not where it's pinned"));
        }
        if place.bank == 0 {
            height = height.max(end.next_multiple_of(problem.banks[0].align.0));
        }
    }
    if height != placement.height.0 {
        return Err(format!("height {height}, claimed {}", placement.height.0));
    }
    if placement.bound > placement.height || placement.reserved < placement.height {
        return Err(format!("bound {} height {height}", placement.bound.0));
    }
    if problem.banks.len() == 1 && placement.bound < problem.lower_bound() {
        return Err(format!("bound {} below the load", placement.bound.0));
    }
    if problem.items.len() <= 3000 { overlaps(problem, placement) } else { sweep(problem, placement) }
}

/// Every pair.
fn overlaps(problem: &Problem, placement: &Placement) -> Result<(), String> {
    let end = |i: usize| placement.places[i].offset.0 + problem.items[i].size.0;
    for i in 0..problem.items.len() {
        for j in 0..i {
            let (a, b) = (&placement.places[i], &placement.places[j]);
            if problem.items[i].size.0 == 0 || problem.items[j].size.0 == 0 {
                continue;
            }
            let meet = problem.items[i].meets(&problem.items[j])
                || problem.lanes.apart.row(i).contains(&u32::try_from(j).unwrap());
            if meet && a.bank == b.bank && a.offset.0 < end(j) && b.offset.0 < end(i) {
                return Err(format!("items {j} and {i} overlap"));
            }
        }
    }
    Ok(())
}

/// Events by time, frees first; each birth is compared with its neighbours in the address space. One bank.
fn sweep(problem: &Problem, placement: &Placement) -> Result<(), String> {
    let mut events = Vec::new();
    for (index, item) in problem.items.iter().enumerate() {
        if item.from < item.until && item.size.0 > 0 {
            events.push((item.until, false, index));
            events.push((item.from, true, index));
        }
    }
    events.sort_unstable();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, born, index) in events {
        let start = placement.places[index].offset.0;
        let end = start + problem.items[index].size.0;
        if !born {
            live.remove(&start);
            continue;
        }
        let below = live.range(..end).next_back();
        if below.is_some_and(|(_, &other)| other > start) {
            return Err(format!("item {index} overlaps another"));
        }
        live.insert(start, end);
    }
    Ok(())
}

/// The lowest height of all, for at most 8 items: every order, each item at its lowest free offset. Some
/// optimal layout is pushed down, and is found with the order of its offsets.
pub(crate) fn brute_force(problem: &Problem) -> u64 {
    fn recurse(items: &[(u32, u32, u64)], placed: &mut Vec<(usize, u64)>, height: u64, best: &mut u64) {
        if height >= *best {
            return;
        }
        if placed.len() == items.len() {
            *best = height;
            return;
        }
        for next in 0..items.len() {
            if placed.iter().any(|&(other, _)| other == next) {
                continue;
            }
            let (from, until, size) = items[next];
            let above = placed
                .iter()
                .filter(|&&(other, _)| items[other].0 < until && from < items[other].1)
                .map(|&(other, offset)| offset + items[other].2)
                .max()
                .unwrap_or(0);
            placed.push((next, above));
            recurse(items, placed, height.max(above + size), best);
            placed.pop();
        }
    }
    let align = problem.banks[0].align.0;
    let items: Vec<(u32, u32, u64)> = problem
        .items
        .iter()
        .filter(|item| item.from < item.until && item.size.0 > 0)
        .map(|item| (item.from, item.until, item.size.0.next_multiple_of(align)))
        .collect();
    let mut best = items.iter().map(|item| item.2).sum::<u64>() + 1;
    recurse(&items, &mut Vec::new(), 0, &mut best);
    // Items without a lifetime lie at 0 and count.
    let idle = problem.items.iter().filter(|item| item.from >= item.until);
    best.max(idle.map(|item| item.size.0.next_multiple_of(align)).max().unwrap_or(0))
}
