//! Which copies wait on the disk, where the device has one.
//!
//! A disk takes what host memory has no room for; and since its link is its own, part of the rest as well, so that both links
//! are busy. What is longest away goes to the disk, or every so many bytes in the order in which they leave, or what leaves as
//! long as the disk is not too busy, as G10 (MICRO 2023) has it; several shares of the bytes are tried, and the clock says which
//! is fastest.

use memfit_ir::{Bytes, Device, Link};

use super::windows::follow_copies;
use super::{Gaps, Window};

/// Shares of the bytes, in hundredths, that go to the disk at least.
const SHARES: [u64; 4] = [0, 8, 17, 33];

/// Parts of the budget that may wait in device memory for the disk, while what leaves goes there first.
const BACKLOGS: [u64; 4] = [32, 12, 6, 3];

/// `windows` with their tiers, in each way that is tried. Without a disk that is one: all in host memory.
pub(super) fn spread(step: &Gaps, windows: &[Window], budget: i64, device: &Device) -> Vec<Vec<Window>> {
    let Some(disk) = device.disk else { return vec![windows.to_vec()] };
    let sizes = windows.iter().map(|window| u128::from(window.gap.copy));
    let total: u128 = sizes.sum();
    let needed = u128::from(Held::of(step, windows).saturating_sub(device.host_memory.0));
    let mut found: Vec<Vec<bool>> = Vec::new();
    for least in SHARES.map(|share| (total * u128::from(share) / 100).max(needed)) {
        found.push(longest(step, windows, least, device.host_memory));
        found.push(every(step, windows, (total, least), device.host_memory));
        for part in BACKLOGS {
            let backlog = disk.link.out_time(Bytes(budget.unsigned_abs() / part)).0;
            found.push(first(step, windows, (least, backlog), (disk.link, device.host_memory)));
        }
    }
    let mut ways: Vec<Vec<bool>> = Vec::new();
    for way in found {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let spread = ways.into_iter().map(|way| {
        let mut windows = windows.to_vec();
        let on_disk = windows.iter_mut().zip(way).filter_map(|(window, on_disk)| on_disk.then_some(window));
        on_disk.for_each(|window| window.move_to_disk(disk.link));
        follow_copies(&mut windows);
        windows
    });
    spread.collect()
}

/// Bytes of copies in host memory by run.
struct Held<'a> {
    step: &'a Gaps,
    bytes: Vec<u64>,
    most: u64,
}

impl Held<'_> {
    /// The most that all copies of `windows` take together.
    fn of(step: &Gaps, windows: &[Window]) -> u64 {
        let mut held = held(step, Bytes::MAX);
        windows.iter().for_each(|window| {
            held.take(window);
        });
        held.bytes.into_iter().max().unwrap_or(0)
    }

    fn during(&self, window: &Window) -> std::ops::Range<usize> {
        window.store..window.gap.to.min(self.step.live.len()) + 1
    }

    /// Takes the copy of `window`, if there is room for it.
    fn take(&mut self, window: &Window) -> bool {
        let (size, during) = (window.gap.copy, self.during(window));
        let fits = self.bytes[during.clone()].iter().all(|&held| held + size <= self.most);
        if fits {
            self.bytes[during].iter_mut().for_each(|held| *held += size);
        }
        fits
    }
}

fn held(step: &Gaps, most: Bytes) -> Held<'_> {
    Held { step, bytes: vec![0; step.live.len() + 2], most: most.0 }
}

/// The longest away go to the disk until `least` bytes have; the others as long as host memory has room, the shortest first.
fn longest(step: &Gaps, windows: &[Window], least: u128, host: Bytes) -> Vec<bool> {
    let mut order: Vec<usize> = (0..windows.len()).collect();
    let away = |at: usize| {
        let gap = &windows[at].gap;
        step.begins[gap.to] - step.begins[gap.from + 1]
    };
    order.sort_by_key(|&at| (std::cmp::Reverse(away(at)), at));
    let mut on_disk = vec![false; windows.len()];
    let mut stored = 0u128;
    let mut rest = order.into_iter();
    while stored < least {
        let Some(at) = rest.next() else { break };
        on_disk[at] = true;
        stored += u128::from(windows[at].gap.copy);
    }
    let mut held = held(step, host);
    for at in rest.rev() {
        on_disk[at] = !held.take(&windows[at]);
    }
    on_disk
}

/// In the order in which they leave: to the disk whenever that is behind its share of the bytes, which is `least` of `total`, or
/// that which host memory has no room for.
fn every(step: &Gaps, windows: &[Window], (total, least): (u128, u128), host: Bytes) -> Vec<bool> {
    let (mut left, mut stored) = (0u128, 0u128);
    let mut held = held(step, host);
    leaving(windows, |window| {
        let size = u128::from(window.gap.copy);
        left += size;
        let on_disk = (stored + size) * total.max(1) <= left * least || !held.take(window);
        stored += if on_disk { size } else { 0 };
        on_disk
    })
}

/// In the order in which they leave: to the disk as long as less than `least` is there, and what waits for it is written within
/// `backlog` ns.
fn first(
    step: &Gaps,
    windows: &[Window],
    (least, backlog): (u128, u64),
    (link, host): (Link, Bytes),
) -> Vec<bool> {
    let (mut stored, mut free) = (0u128, 0u64);
    let mut held = held(step, host);
    leaving(windows, |window| {
        let (size, now) = (window.gap.copy, step.begins[window.store]);
        let idle = stored < least && free.saturating_sub(now) <= backlog;
        let on_disk = idle || !held.take(window);
        if on_disk {
            stored += u128::from(size);
            free = free.max(now).saturating_add(link.out_time(Bytes(size)).0);
        }
        on_disk
    })
}

/// What `decide` says of each of `windows`, in the order in which they leave.
fn leaving(windows: &[Window], mut decide: impl FnMut(&Window) -> bool) -> Vec<bool> {
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by_key(|&at| (windows[at].store, at));
    let mut on_disk = vec![false; windows.len()];
    for at in order {
        on_disk[at] = decide(&windows[at]);
    }
    on_disk
}
