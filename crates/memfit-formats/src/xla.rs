//! XLA's dump of a buffer assignment, as `--xla_dump_to` writes it: `…-buffer-assignment.txt` says how large each value is and where XLA
//! put it, `…-live-range.txt` from which instruction to which it is live, both included.
//!
//! What XLA itself places is the allocation `preallocated-temp`; parameters, constants, results and what is local to a thread belong to
//! others. Where XLA gave two values the same bytes at the same time, it knows that they may share them (in place, or
//! the value of a loop before and after): such values are one buffer here, from the first byte and moment of them to the last.
//! So what XLA assigned is a valid placement, and no placement is asked to keep apart what XLA does not.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, MAX_COUNT};

use crate::FormatError;
use crate::csv::CsvBuffer;

/// Temporary values of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// A buffer for each value, or for those that share memory: then all their names, with spaces between. Ordered by the first
    /// moment, then by XLA's offset.
    pub buffers: Vec<CsvBuffer>,
    /// What XLA assigned to them together.
    pub taken: Bytes,
}

/// The most names that a buffer is called by.
const MOST_NAMES: usize = 16;
/// The most passes over values that share bytes; each but the last joins some.
const MOST_PASSES: usize = 64;
/// The allocation that XLA places values in.
const TEMP: &str = "preallocated-temp";

/// Whether `bytes` are a buffer assignment of XLA's.
#[must_use]
pub fn is_like(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"BufferAssignment:")
}

/// Bytes `[low, high)` from moment `from` to moment `to`, both included.
#[derive(Clone, Debug)]
struct Value {
    names: Vec<String>,
    low: u64,
    high: u64,
    from: u64,
    to: u64,
}

/// Reads a buffer assignment. Its live ranges are in `ranges`, or follow in the same file. A value without a live range is live
/// throughout.
///
/// # Errors
///
/// If a line of a value or a range is not as XLA writes it, a value reaches over its allocation's end, there are no
/// live ranges, or temporary values in several memories. The place is the line.
pub fn read(assignment: &[u8], ranges: Option<&[u8]>) -> Result<Assignment, FormatError> {
    let text = utf8(assignment)?;
    let live = ranges.map(utf8).transpose()?.unwrap_or(text);
    let live = Ranges::of(live)?;
    let (mut values, mut taken, mut temp, mut colour) = (Vec::new(), 0u64, None, None);
    for (at, line) in (1..).zip(text.lines()) {
        let refuse =
            |message: &str| FormatError::new(format!("line {at}"), format!("{message}: `{}`", shown(line)));
        if let Some(rest) = line.strip_prefix("allocation ") {
            let size =
                rest.split_once(": size ").and_then(|(_, rest)| number(rest.split([',', ':']).next()?));
            let size = size.ok_or_else(|| refuse("an allocation without a size"))?;
            let kinds = rest.trim_end_matches(':').split(", ");
            temp = kinds.skip(1).any(|kind| kind == TEMP).then_some(size);
            if let Some(size) = temp {
                taken = taken.checked_add(size).ok_or_else(|| refuse("more than 2^64 bytes in all"))?;
            }
            continue;
        }
        let (Some(size), true) = (temp, line.trim_start().starts_with("value: <")) else { continue };
        let (name, memory, low, length) =
            value(line).ok_or_else(|| refuse("a value without name, size or offset"))?;
        let high = low.checked_add(length).filter(|&high| high <= size);
        let high = high.ok_or_else(|| refuse("a value reaches over the end of its allocation"))?;
        if *colour.get_or_insert(memory) != memory {
            return Err(
                refuse("temporary values in several memories").hint("place those of one memory at a time")
            );
        }
        if values.len() >= MAX_COUNT {
            return Err(refuse("too many values"));
        }
        let (from, to) = live.of_value(name);
        // Allocations follow each other in what is placed.
        let base = taken - size;
        values.push(Value { names: vec![name.to_owned()], low: base + low, high: base + high, from, to });
    }
    if taken >= 1 << 62 {
        return Err(FormatError::new("", "all allocations together reach 2^62 bytes"));
    }
    let buffers = joined(values)?.into_iter().map(|value| CsvBuffer {
        id: name(&value.names),
        lower: value.from,
        upper: value.to.saturating_add(1),
        size: Bytes(value.high - value.low),
        ..CsvBuffer::default()
    });
    Ok(Assignment { buffers: unique(buffers.collect()), taken: Bytes(taken) })
}

fn utf8(bytes: &[u8]) -> Result<&str, FormatError> {
    std::str::from_utf8(bytes).map_err(|_| FormatError::new("", "a dump of XLA's that is not UTF-8 text"))
}

fn shown(line: &str) -> String {
    line.trim().chars().take(100).collect()
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Name, memory, offset and size in ` value: <11 wrapped_add @0> (size=4,offset=16448): s32[]`.
fn value(line: &str) -> Option<(&str, &str, u64, u64)> {
    let (head, tail) = line.split_once('<')?.1.split_once("> (size=")?;
    let (size, rest) = tail.split_once(",offset=")?;
    let (name, memory) = head.split_once(' ')?.1.rsplit_once(" @")?;
    let name = name.strip_suffix(" (phi)").unwrap_or(name);
    Some((name, memory, number(rest.split_once(')')?.0)?, number(size)?))
}

/// Live ranges by the name of the value, and the last moment.
struct Ranges<'a> {
    ranges: BTreeMap<&'a str, (u64, u64)>,
    last: u64,
}

impl<'a> Ranges<'a> {
    fn of(text: &'a str) -> Result<Ranges<'a>, FormatError> {
        let (mut ranges, mut last, mut within, mut found) = (BTreeMap::new(), 0, false, false);
        for (at, line) in (1..).zip(text.lines()) {
            if line.trim_end() == "  BufferLiveRange:" {
                (within, found) = (true, true);
                continue;
            }
            within &= line.starts_with("    ");
            if !within {
                continue;
            }
            let (name, range) = line.trim().rsplit_once(':').unwrap_or_default();
            let range = range.split_once('-').and_then(|(from, to)| Some((number(from)?, number(to)?)));
            let Some((from, to)) =
                range.filter(|(from, to)| from <= to && *to < u64::MAX && !name.is_empty())
            else {
                let message = format!("not a live range, as in `name{{}}:3-5`: `{}`", shown(line));
                return Err(FormatError::new(format!("line {at} of the live ranges"), message));
            };
            last = last.max(to);
            ranges.insert(name, (from, to));
        }
        if !found {
            return Err(FormatError::new(
                "",
                "no live ranges: a buffer assignment has sizes and offsets alone",
            )
            .hint("XLA writes them beside it: `--live-ranges …-live-range.txt`"));
        }
        Ok(Ranges { ranges, last })
    }

    /// A value that is no element of a tuple has `{}` after its name here.
    fn of_value(&self, name: &str) -> (u64, u64) {
        let whole = || self.ranges.get(format!("{name}{{}}").as_str());
        self.ranges.get(name).or_else(whole).copied().unwrap_or((0, self.last))
    }
}

/// The values with those joined that share bytes while both are live. Time O(n log n) a pass.
fn joined(mut values: Vec<Value>) -> Result<Vec<Value>, FormatError> {
    for _ in 0..MOST_PASSES {
        let before = values.len();
        values = pass(values);
        if values.len() == before {
            values.sort_by_key(|value| (value.from, value.low));
            return Ok(values);
        }
    }
    Err(FormatError::new("", "its values share bytes in too many ways"))
}

/// One sweep over time, with what is live by its first byte.
fn pass(mut values: Vec<Value>) -> Vec<Value> {
    values.retain(|value| value.low < value.high);
    values.sort_by_key(|value| (value.from, value.low));
    let mut live: BTreeMap<u64, Value> = BTreeMap::new();
    let mut ends: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut done = Vec::new();
    for mut value in values {
        // What ended before: those of which the end was not moved by a join since.
        while let Some(entry) = ends.first_entry().filter(|entry| *entry.key() < value.from) {
            let (end, lows) = entry.remove_entry();
            for low in lows {
                if live.get(&low).is_some_and(|value| value.to == end) {
                    done.extend(live.remove(&low));
                }
            }
        }
        while let Some((&low, _)) =
            live.range(..value.high).next_back().filter(|(_, other)| other.high > value.low)
        {
            let Some(other) = live.remove(&low) else { break };
            value = Value {
                names: other.names.into_iter().chain(value.names).collect(),
                low: value.low.min(other.low),
                high: value.high.max(other.high),
                from: value.from.min(other.from),
                to: value.to.max(other.to),
            };
        }
        ends.entry(value.to).or_default().push(value.low);
        live.insert(value.low, value);
    }
    done.extend(live.into_values());
    done
}

/// The names of values that share memory.
fn name(names: &[String]) -> String {
    let mut text = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(" ");
    if names.len() > MOST_NAMES {
        text += " …";
    }
    text
}

/// The same buffers; one whose name is there already gets its number after it.
fn unique(mut buffers: Vec<CsvBuffer>) -> Vec<CsvBuffer> {
    let mut seen = std::collections::BTreeSet::new();
    for (at, buffer) in buffers.iter_mut().enumerate() {
        if !seen.insert(buffer.id.clone()) {
            buffer.id = format!("{} #{at}", buffer.id);
        }
    }
    buffers
}
