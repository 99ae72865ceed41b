//! What stays, and why: for a user whose budget is too small to be quick.

use std::collections::BTreeMap;

use memfit::ir::{Effect, Tier};

use super::dispatch::{Entry, Inner};

impl Inner {
    /// What has been done so far, by name: ops, bytes, ns.
    pub(super) fn stats(&self) -> [(&'static str, u64); 19] {
        let stats = self.engine.stats();
        [
            ("ops", stats.calls),
            ("recomputed_ops", stats.recomputes),
            ("evictions", stats.evictions),
            ("evaluations", stats.evaluations),
            ("peak_bytes", stats.peak.0),
            ("used_bytes", stats.used.0),
            ("op_ns", stats.first_ns),
            ("recompute_ns", stats.recompute_ns),
            ("stall_ns", stats.stall_ns),
            ("encoded_bytes", stats.encoded.0),
            ("lost_copies", stats.lost),
            ("stored_bytes", stats.stored.0),
            ("loaded_bytes", stats.loaded.0),
            ("host_peak_bytes", stats.tier_peaks[Tier::Host.index()].0),
            ("disk_peak_bytes", stats.tier_peaks[Tier::Disk.index()].0),
            ("storages", self.entries.len() as u64),
            ("recipes", self.engine.host.recipes.len() as u64),
            ("looks", self.looks.len() as u64),
            ("shapes", self.ops.profiles.len() as u64),
        ]
    }

    /// Why there are bytes that can't go, the most bytes first: why, bytes, storages.
    pub(super) fn kept(&self) -> Vec<(String, u64, u64)> {
        let mut kept: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut held = 0;
        for entry in self.entries.values().filter(|entry| entry.bytes > 0) {
            if !self.engine.is_evictable(entry.tensor) {
                let (bytes, count) = kept.entry(why(entry)).or_default();
                *bytes += entry.bytes;
                *count += 1;
                held += 1;
            }
        }
        let (bytes, count) = self.engine.past_bytes();
        if held > 0 || count > 0 {
            let past = "that the program has given up, and others are computed from".to_owned();
            kept.insert(past, (bytes.0, count));
        }
        let mut kept: Vec<_> = kept
            .into_iter()
            .map(|(why, (bytes, count))| (why, bytes, count))
            .filter(|kept| kept.1 > 0)
            .collect();
        kept.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        kept
    }
}

fn why(entry: &Entry) -> String {
    match &entry.by {
        _ if entry.exposed => "that others may write to (NumPy, DLPack, a pointer)".to_owned(),
        None => "that was there before, or was made outside".to_owned(),
        Some(op) if matches!(op.effect, Effect::Once | Effect::Collective) => {
            format!("made or written by `{}`, which is not run again", op.name)
        }
        Some(_) => "overwritten in place, or made from what has been overwritten or given up".to_owned(),
    }
}
