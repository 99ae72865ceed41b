//! A lane and the two queues of each tier's link at one moment, as `memfit_sim` has them, in whole numbers.
//!
//! Times are in ns, bytes in parts of 2⁻²⁰, rates in such parts for each ns: so what a transfer has left does not depend on how
//! often it was looked at meanwhile, and two machines that will do the same from now on are equal, whenever that is. Of the
//! simulator's clock this differs by how rates are rounded: by less than a millionth.

use std::collections::VecDeque;

use memfit_ir::{Bytes, Device, Link, Tier, usable_rate};

/// Parts of a byte that are counted.
const PARTS: u32 = 20;

/// The largest transfer that is told from larger ones: 2⁴³ bytes.
const LARGEST: u64 = u64::MAX >> (PARTS + 1);

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out = 0,
    In = 1,
}

/// How fast a link is.
#[derive(Clone, Copy, Debug)]
struct Pace {
    latency: u64,
    /// Parts of bytes for each ns, out and in, where one way is in use, and where both are.
    alone: [u64; 2],
    beside: [u64; 2],
    /// What ops wait for, where they do not go on while a transfer is under way.
    waiting: Option<Link>,
}

impl Pace {
    fn of(link: Option<Link>) -> Pace {
        // Without a link a transfer goes at 1 GB/s, as it does for the simulator.
        let Some(link) = link else {
            let rates = [1 << PARTS; 2];
            return Pace { latency: 0, alone: rates, beside: rates, waiting: None };
        };
        let parts = f64::from(1u32 << PARTS) / 1e9;
        let rates = [link.out_bandwidth, link.in_bandwidth].map(usable_rate);
        let share = (usable_rate(link.duplex_cap) / (rates[0] + rates[1])).min(1.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let whole = |rate: f64| ((rate * parts).round() as u64).max(1);
        Pace {
            latency: link.latency.0,
            alone: rates.map(whole),
            beside: rates.map(|rate| whole(rate * share)),
            waiting: (!link.asynchronous).then_some(link),
        }
    }
}

/// The links of a device, and how much each tier holds.
#[derive(Clone, Debug)]
pub(super) struct Links {
    paces: [Pace; Tier::ALL.len()],
    room: [u64; Tier::ALL.len()],
}

impl Links {
    pub(super) fn of(device: &Device) -> Links {
        let limits = device.limits();
        Links {
            paces: Tier::ALL.map(|(tier, _)| Pace::of(device.link_to(tier))),
            room: Tier::ALL.map(|(tier, _)| limits.tier(tier).0),
        }
    }
}

/// A transfer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    /// Who asked for it.
    of: usize,
    /// Latency that is left once its turn has come, in ns.
    wait: u64,
    /// Parts of bytes that are left.
    left: u64,
}

/// A tier: its queues out and in, up to a moment, and the bytes of copies that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shelf {
    /// Ns by which the queues are behind the lane.
    behind: u64,
    queues: [VecDeque<Transfer>; 2],
    held: u64,
}

impl Shelf {
    /// Lets the queues run on for `ns`, or until nothing is left to do.
    fn run(&mut self, pace: &Pace, mut ns: u64) {
        while ns > 0
            && let Some((step, rates)) = self.next(pace)
        {
            let step = step.min(ns);
            ns -= step;
            self.go_on(step, rates);
        }
    }

    /// Ns until something ends, and the rates meanwhile; `None` if nothing is under way.
    fn next(&self, pace: &Pace) -> Option<(u64, [u64; 2])> {
        let moves = |queue: &VecDeque<Transfer>| queue.front().is_some_and(|transfer| transfer.wait == 0);
        let rates = if self.queues.iter().all(moves) { pace.beside } else { pace.alone };
        let ends = self.queues.iter().zip(rates).filter_map(|(queue, rate)| {
            let &Transfer { wait, left, .. } = queue.front()?;
            Some(if wait > 0 { wait } else { left.div_ceil(rate) })
        });
        Some((ends.min()?, rates))
    }

    fn go_on(&mut self, ns: u64, rates: [u64; 2]) {
        for (queue, rate) in self.queues.iter_mut().zip(rates) {
            let Some(transfer) = queue.front_mut() else { continue };
            if transfer.wait > 0 {
                transfer.wait -= ns.min(transfer.wait);
            } else {
                transfer.left = transfer.left.saturating_sub(rate.saturating_mul(ns));
            }
            if transfer.wait == 0 && transfer.left == 0 {
                queue.pop_front();
            }
        }
    }
}

/// See the head of the file. Two are equal if they do the same from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    shelves: [Shelf; Tier::ALL.len()],
}

/// A machine, and what has come together on the way to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// Ns since the start.
    pub(super) now: u64,
    /// Bytes above what tiers hold, over all stores.
    pub(super) over: u64,
    pub(super) machine: Machine,
}

impl Moment {
    /// The lane works for `ns`.
    pub(super) fn work(&mut self, ns: u64) {
        self.now = self.now.saturating_add(ns);
        for shelf in &mut self.machine.shelves {
            shelf.behind = shelf.behind.saturating_add(ns);
        }
    }

    /// A copy of `size` bytes is begun to `tier`, or from it. A store counts among what the tier holds from here on.
    pub(super) fn begin(&mut self, links: &Links, (tier, way): (Tier, Way), of: usize, size: Bytes) {
        let at = tier.index();
        let pace = &links.paces[at];
        self.catch_up(links, tier);
        let shelf = &mut self.machine.shelves[at];
        if way == Way::Out {
            shelf.held = shelf.held.saturating_add(size.0);
            self.over = self.over.saturating_add(shelf.held.saturating_sub(links.room[at]));
        }
        match pace.waiting {
            Some(link) if way == Way::Out => self.work(link.out_time(size).0),
            Some(link) => self.work(link.in_time(size).0),
            None => {
                let left = size.0.min(LARGEST) << PARTS;
                if left > 0 || pace.latency > 0 {
                    shelf.queues[way as usize].push_back(Transfer { of, wait: pace.latency, left });
                }
            }
        }
    }

    /// The lane waits for the transfer that was begun for `of`, and those before it in its queue, if it is not done.
    pub(super) fn wait(&mut self, links: &Links, (tier, way): (Tier, Way), of: usize) {
        self.catch_up(links, tier);
        let (at, pace) = (tier.index(), &links.paces[tier.index()]);
        let mut waited = 0u64;
        let shelf = &mut self.machine.shelves[at];
        while shelf.queues[way as usize].iter().any(|transfer| transfer.of == of)
            && let Some((step, rates)) = shelf.next(pace)
        {
            shelf.go_on(step, rates);
            waited = waited.saturating_add(step);
        }
        self.work(waited);
        // This tier went on while the lane waited.
        self.machine.shelves[at].behind = 0;
    }

    /// A copy of `size` bytes in `tier` is given up.
    pub(super) fn discard(&mut self, tier: Tier, size: Bytes) {
        let held = &mut self.machine.shelves[tier.index()].held;
        *held = held.saturating_sub(size.0);
    }

    fn catch_up(&mut self, links: &Links, tier: Tier) {
        let shelf = &mut self.machine.shelves[tier.index()];
        let behind = std::mem::take(&mut shelf.behind);
        shelf.run(&links.paces[tier.index()], behind);
    }

    /// Brings all queues to now, so that it can be compared.
    pub(super) fn settle(&mut self, links: &Links) {
        for (tier, _) in Tier::ALL {
            self.catch_up(links, tier);
        }
    }

    /// The end: all queues run dry.
    pub(super) fn end(&mut self, links: &Links) {
        self.settle(links);
        let mut longest = 0;
        for (shelf, pace) in self.machine.shelves.iter_mut().zip(&links.paces) {
            let mut ns = 0u64;
            while let Some((step, rates)) = shelf.next(pace) {
                shelf.go_on(step, rates);
                ns = ns.saturating_add(step);
            }
            longest = longest.max(ns);
        }
        self.now = self.now.saturating_add(longest);
    }
}
