//! Loads ahead of uses and stores behind them, so that ops go on meanwhile.
//!
//! First, uses that lie near each other become one stay where there is room in between: the shortest times first. Then the step
//! is walked once from its first run to its last, with the time of the lane and of both queues of each link. A stay is loaded
//! as soon as it has to be for its transfer and those after it to be done in time, if there is room from there on; one that is
//! stored goes when its copy is there, or when its room is needed. What else is moved is part of what is live, but its transfers
//! are not among those of the queues: what the program takes is for the clock to say. Time O(stays × runs between load and use).

use memfit_ir::{Device, Tier};

use super::stays::HomeStay;

/// By run: when it begins if nothing is waited for; and when all is done.
fn begins(times: &[u64]) -> Vec<u64> {
    let mut now = 0u64;
    let mut begins = vec![0];
    for &time in times {
        now = now.saturating_add(time);
        begins.push(now);
    }
    begins
}

/// `stays`, which are for one use each, longer where that hides transfers. `live` is what is live during each run and after the
/// last, `times` what each run takes, `limit` the most that may be live.
pub(in crate::schedule) fn ahead(
    stays: Vec<HomeStay>,
    times: &[u64],
    mut live: Vec<i64>,
    limit: i64,
    device: &Device,
) -> Vec<HomeStay> {
    let begins = begins(times);
    let mut stays = joined(stays, &begins, &mut live, limit);
    stays.sort_by_key(|stay| (stay.first, stay.value()));
    let due = due(&stays, &begins, device);
    let mut ends: Vec<usize> = (0..stays.len()).filter(|&at| stays[at].is_dirty()).collect();
    ends.sort_by_key(|&at| std::cmp::Reverse((stays[at].last, at)));
    Walk {
        stays,
        due,
        live,
        limit,
        device,
        next: 0,
        ends,
        loaded: Vec::new(),
        leaving: Vec::new(),
        queues: [[0; 2]; Tier::ALL.len()],
    }
    .walk(times)
}

/// `stays` with the ones joined between which there is room, the nearest first.
fn joined(stays: Vec<HomeStay>, begins: &[u64], live: &mut [i64], limit: i64) -> Vec<HomeStay> {
    let mut gaps: Vec<(u64, usize)> = Vec::new();
    for (at, pair) in stays.windows(2).enumerate().filter(|(_, pair)| pair[0].is_before(&pair[1])) {
        gaps.push((begins[pair[1].first] - begins[pair[0].last + 1], at));
    }
    gaps.sort_unstable();
    let mut goes_on = vec![false; stays.len()];
    for (_, at) in gaps {
        let between = stays[at].last + 1..stays[at + 1].first;
        let bytes = stays[at].bytes;
        if live[between.clone()].iter().all(|&live| live.saturating_add(bytes) <= limit) {
            live[between].iter_mut().for_each(|live| *live += bytes);
            goes_on[at] = true;
        }
    }
    let mut joined: Vec<HomeStay> = Vec::with_capacity(stays.len());
    let mut goes_on_from = false;
    for (at, stay) in stays.into_iter().enumerate() {
        match joined.last_mut().filter(|_| goes_on_from) {
            Some(before) => *before = before.until(stay),
            None => joined.push(stay),
        }
        goes_on_from = goes_on[at];
    }
    joined
}

/// By stay, of those sorted by their first run: when its load must begin so that it and those after it come in time.
fn due(stays: &[HomeStay], begins: &[u64], device: &Device) -> Vec<u64> {
    let mut due = vec![0; stays.len()];
    let mut next = [u64::MAX; Tier::ALL.len()];
    for (at, stay) in stays.iter().enumerate().rev() {
        let Some(tier) = stay.tier() else { continue };
        let tier = &mut next[tier.index()];
        *tier = (*tier).min(begins[stay.first]).saturating_sub(takes(stay, device)[1]);
        due[at] = *tier;
    }
    due
}

/// Ns that the transfers of `stay` take: out, and in.
pub(super) fn takes(stay: &HomeStay, device: &Device) -> [u64; 2] {
    let Some(link) = stay.tier().and_then(|tier| device.link_to(tier)) else { return [0; 2] };
    let size = crate::problem::bytes(stay.bytes);
    [link.out_time(size).0, link.in_time(size).0]
}

struct Walk<'a> {
    stays: Vec<HomeStay>,
    due: Vec<u64>,
    /// What is live without what is loaded ahead, and without what is leaving.
    live: Vec<i64>,
    limit: i64,
    device: &'a Device,
    /// The next stay to be loaded.
    next: usize,
    /// Stays that are stored, the first to end last.
    ends: Vec<usize>,
    /// Stays that were loaded and whose first run is to come, and when they are there.
    loaded: Vec<(usize, u64)>,
    /// Stays that are being stored, in that order, and when that is done.
    leaving: Vec<(usize, u64)>,
    /// When each queue is done with what it was given: out and in.
    queues: [[u64; 2]; Tier::ALL.len()],
}

impl Walk<'_> {
    fn walk(mut self, times: &[u64]) -> Vec<HomeStay> {
        let asynchronous =
            Tier::ALL.map(|(tier, _)| self.device.link_to(tier).is_some_and(|l| l.asynchronous));
        if !asynchronous.contains(&true) {
            return self.stays; // Where ops wait for transfers anyway, nothing is hidden behind them.
        }
        let (mut now, mut behind) = (0u64, 0u64);
        for (run, &time) in times.iter().enumerate() {
            now = now.max(self.make_room(run, now));
            // Runs are behind the times by what was waited for so far.
            now = self.load_ahead(run, now, behind, time);
            let before = now;
            while let Some(at) = self.loaded.iter().position(|&(stay, _)| self.stays[stay].first <= run) {
                let (_, there) = self.loaded.swap_remove(at);
                now = now.max(there);
            }
            behind = behind.saturating_add(now - before);
            now = now.saturating_add(time);
            self.store(run, now);
        }
        for (stay, _) in std::mem::take(&mut self.leaving) {
            self.stays[stay].gone = times.len().saturating_sub(1).max(self.stays[stay].last);
        }
        self.stays
    }

    /// Bytes of what is leaving.
    fn leaving_bytes(&self) -> i64 {
        self.leaving.iter().map(|&(stay, _)| self.stays[stay].bytes).sum()
    }

    /// What has left by `now` goes before `run`, and more if `run` would not fit; when there is room for it.
    fn make_room(&mut self, run: usize, mut now: u64) -> u64 {
        while let Some(&(stay, done)) = self.leaving.first()
            && (done <= now || self.live[run].saturating_add(self.leaving_bytes()) > self.limit)
        {
            now = now.max(done);
            self.stays[stay].gone = run.saturating_sub(1).max(self.stays[stay].last);
            self.leaving.remove(0);
        }
        now
    }

    /// Loads what is due before the end of `run`, in the order of use, as far as there is room; what `run` itself uses in any
    /// case.
    fn load_ahead(&mut self, run: usize, mut now: u64, behind: u64, time: u64) -> u64 {
        while let Some(&HomeStay { first, bytes, .. }) = self.stays.get(self.next) {
            let is_due = self.due[self.next].saturating_add(behind) < now.saturating_add(time.max(1));
            if first > run {
                let fits = self.live[run..first].iter().all(|&live| live.saturating_add(bytes) <= self.limit);
                if !is_due || !fits {
                    break;
                }
                // Room that something takes which is leaving: it is worth a wait where the link is what holds up all.
                while self.live[run].saturating_add(bytes).saturating_add(self.leaving_bytes()) > self.limit {
                    let Some(&(stay, done)) = self.leaving.first() else { break };
                    if done > now.saturating_add(time / 2) {
                        return now;
                    }
                    now = now.max(done);
                    self.stays[stay].gone = run.saturating_sub(1).max(self.stays[stay].last);
                    self.leaving.remove(0);
                }
                self.live[run..first].iter_mut().for_each(|live| *live += bytes);
            }
            let tier = self.stays[self.next].tier().unwrap_or_default().index();
            let takes = takes(&self.stays[self.next], self.device)[1];
            let there = self.queues[tier][1].max(now).saturating_add(takes);
            self.queues[tier][1] = there;
            self.stays[self.next].load = run.min(first);
            self.loaded.push((self.next, there));
            self.next += 1;
        }
        now
    }

    /// What `run` is the last to use, and was mutated, begins to leave at `now`.
    fn store(&mut self, run: usize, now: u64) {
        while let Some(&at) = self.ends.last().filter(|&&at| self.stays[at].last <= run) {
            self.ends.pop();
            let stay = self.stays[at];
            let tier = stay.tier().unwrap_or_default().index();
            let there = self.queues[tier][0].max(now).saturating_add(takes(&stay, self.device)[0]);
            self.queues[tier][0] = there;
            self.leaving.push((at, there));
        }
    }
}
