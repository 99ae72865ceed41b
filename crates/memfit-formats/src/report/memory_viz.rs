//! The report as a snapshot of PyTorch's CUDA allocator, for the viewer at `pytorch.org/memory_viz` and all that reads such
//! snapshots, our own reader included ([`crate::snapshot`]).
//!
//! A bank becomes a segment, a stay an allocation at its address; stays without a place get addresses of their own. What is
//! there from the start is allocated by the first events, as the viewer expects. The stack of an allocation is one frame: the
//! name of the buffer, what made it, and its module in place of a file.
//!
//! Pickle protocol 2, of the opcodes that plain data needs; names are memoised, since the same ones come again and again.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Place};

use super::model::{Report, Stay};

/// Where the first segment begins; one bank follows on the other at multiples of this.
const BASE: u64 = 1 << 40;

/// A pickle.
#[must_use]
pub fn memory_viz(report: &Report) -> Vec<u8> {
    let places = places(report);
    let heights = heights(report, &places);
    let mut out = Pickle::new();
    out.open_dict();
    out.text("segments");
    out.open_list();
    for (bank, &height) in heights.iter().enumerate() {
        segment(&mut out, report, &places, bank, height);
    }
    out.close_list();
    out.text("device_traces");
    out.open_list();
    out.open_list();
    for (bank, &height) in heights.iter().enumerate() {
        event(&mut out, "segment_alloc", address(bank, 0), height, 0, |out| out.empty_list());
    }
    events(&mut out, report, &places);
    out.close_list();
    out.close_list();
    out.text("allocator_settings");
    out.open_dict();
    out.close_dict();
    out.close_dict();
    out.end()
}

/// A place for every stay.
fn places(report: &Report) -> Vec<Place> {
    let mut next = Bytes::ZERO;
    let place = |stay: &Stay| {
        stay.place.unwrap_or_else(|| {
            let place = Place { bank: 0, offset: next };
            next += stay.size;
            place
        })
    };
    report.stays.iter().map(place).collect()
}

/// Bytes of each bank.
fn heights(report: &Report, places: &[Place]) -> Vec<u64> {
    let mut heights = vec![0; 1];
    for (stay, place) in report.stays.iter().zip(places) {
        let bank = usize::from(place.bank);
        if heights.len() <= bank {
            heights.resize(bank + 1, 0);
        }
        heights[bank] = heights[bank].max(place.offset.0.saturating_add(stay.size.0));
    }
    heights
}

fn address(bank: usize, offset: u64) -> u64 {
    BASE.saturating_mul(bank as u64 + 1).saturating_add(offset)
}

/// A segment with what is in it at the end.
fn segment(out: &mut Pickle, report: &Report, places: &[Place], bank: usize, height: u64) {
    let mut here: Vec<(u64, &Stay)> = report
        .stays
        .iter()
        .zip(places)
        .filter(|(stay, place)| {
            usize::from(place.bank) == bank && stay.from < stay.until && stay.until >= report.instants
        })
        .filter(|(stay, _)| stay.size > Bytes::ZERO)
        .map(|(stay, place)| (place.offset.0, stay))
        .collect();
    here.sort_by_key(|(offset, _)| *offset);
    let allocated: u64 = here.iter().map(|(_, stay)| stay.size.0).sum();
    out.open_dict();
    for (key, number) in [
        ("device", 0),
        ("address", address(bank, 0)),
        ("total_size", height),
        ("allocated_size", allocated),
        ("active_size", allocated),
        ("requested_size", here.iter().map(|(_, stay)| stay.bytes.0).sum()),
        ("stream", 0),
    ] {
        out.text(key);
        out.int(number);
    }
    out.text("segment_type");
    out.text("large");
    out.text("is_expandable");
    out.bool(false);
    out.text("blocks");
    out.open_list();
    let mut next = 0;
    for (offset, stay) in here {
        if offset < next {
            continue; // Of a report that no judge has read: one that overlaps.
        }
        if offset > next {
            block(out, bank, next, offset - next, "inactive", |out| out.empty_list());
        }
        block(out, bank, offset, stay.size.0, "active_allocated", |out| frames(out, report, stay));
        next = offset.saturating_add(stay.size.0);
    }
    if height > next {
        block(out, bank, next, height - next, "inactive", |out| out.empty_list());
    }
    out.close_list();
    out.close_dict();
}

fn block(
    out: &mut Pickle,
    bank: usize,
    offset: u64,
    size: u64,
    state: &str,
    frames: impl FnOnce(&mut Pickle),
) {
    out.open_dict();
    for (key, number) in [("address", address(bank, offset)), ("size", size), ("requested_size", size)] {
        out.text(key);
        out.int(number);
    }
    out.text("state");
    out.text(state);
    out.text("frames");
    frames(out);
    out.close_dict();
}

/// Allocations and releases in their order: at one instant what goes goes before what comes.
fn events(out: &mut Pickle, report: &Report, places: &[Place]) {
    let mut order: Vec<(usize, bool, usize)> = Vec::with_capacity(report.stays.len() * 2);
    for (index, stay) in report.stays.iter().enumerate().filter(|(_, stay)| stay.from < stay.until) {
        order.push((stay.from, true, index));
        if stay.until < report.instants {
            order.push((stay.until, false, index));
        }
    }
    order.sort_unstable();
    for (at, comes, index) in order {
        let (stay, place) = (&report.stays[index], places[index]);
        let (address, size) = (address(place.bank.into(), place.offset.0), stay.size.0);
        let micros = report.time_of(at).0 / 1000;
        if comes {
            event(out, "alloc", address, size, micros, |out| frames(out, report, stay));
        } else {
            event(out, "free_requested", address, size, micros, |out| frames(out, report, stay));
            event(out, "free_completed", address, size, micros, |out| frames(out, report, stay));
        }
    }
}

fn event(
    out: &mut Pickle,
    action: &str,
    address: u64,
    size: u64,
    micros: u64,
    frames: impl FnOnce(&mut Pickle),
) {
    out.open_dict();
    out.text("action");
    out.text(action);
    for (key, number) in [("addr", address), ("size", size), ("stream", 0), ("time_us", micros)] {
        out.text(key);
        out.int(number);
    }
    out.text("frames");
    frames(out);
    out.close_dict();
}

fn frames(out: &mut Pickle, report: &Report, stay: &Stay) {
    let name = |id| report.names.get(id);
    out.open_list();
    for (function, file) in [
        (format!("{} ({})", name(stay.name), name(stay.role)), name(stay.module)),
        (name(stay.made_by).to_owned(), name(stay.module)),
    ] {
        if !function.is_empty() {
            out.open_dict();
            out.text("name");
            out.text(&function);
            out.text("filename");
            out.text(file);
            out.text("line");
            out.int(0);
            out.close_dict();
        }
    }
    out.close_list();
}

/// A pickle in the making.
struct Pickle {
    bytes: Vec<u8>,
    memo: BTreeMap<String, u32>,
}

impl Pickle {
    fn new() -> Pickle {
        Pickle { bytes: vec![0x80, 2], memo: BTreeMap::new() }
    }

    /// `}(`: pairs follow, up to [`Pickle::close_dict`].
    fn open_dict(&mut self) {
        self.bytes.extend_from_slice(b"}(");
    }

    fn close_dict(&mut self) {
        self.bytes.push(b'u');
    }

    /// `](`: items follow, up to [`Pickle::close_list`].
    fn open_list(&mut self) {
        self.bytes.extend_from_slice(b"](");
    }

    fn close_list(&mut self) {
        self.bytes.push(b'e');
    }

    fn empty_list(&mut self) {
        self.bytes.push(b']');
    }

    fn bool(&mut self, yes: bool) {
        self.bytes.push(if yes { 0x88 } else { 0x89 });
    }

    /// LONG1: eight bytes and one for the sign.
    fn int(&mut self, number: u64) {
        if let Ok(small) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend_from_slice(&small.to_le_bytes());
        } else {
            self.bytes.extend_from_slice(&[0x8a, 9]);
            self.bytes.extend_from_slice(&number.to_le_bytes());
            self.bytes.push(0);
        }
    }

    /// BINUNICODE, memoised.
    fn text(&mut self, text: &str) {
        if let Some(&number) = self.memo.get(text) {
            self.bytes.push(b'j');
            self.bytes.extend_from_slice(&number.to_le_bytes());
            return;
        }
        // Names are cut, so that their lengths fit.
        let (Ok(length), Ok(number)) = (u32::try_from(text.len()), u32::try_from(self.memo.len())) else {
            self.bytes.push(b'N');
            return;
        };
        self.bytes.push(b'X');
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(b'r');
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.memo.insert(text.to_owned(), number);
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }
}
