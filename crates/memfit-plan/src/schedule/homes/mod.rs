//! Parameters, state and constants that are at home in another tier, or encoded: plain on the device only for the ops that use them.
//!
//! Such a storage begins and ends the step as a copy in its tier. It is loaded before a use, and where an op has mutated it,
//! stored after that; what was only read need not be stored, since the copy is still what it is. The step is cyclic: from the
//! last use in one to the first use in the next the storage takes no device memory at all, which no gap between two uses gives.
//!
//! For everybody who plans runs and moves other values, a use of such a storage is scratch memory of the run that uses it
//! ([`Task::parked`]): that is all there must be room for. When it is loaded and stored beside that is decided last, for a given
//! list of runs with what else is away: right beside the use, or as far from it as hides the transfers where there is room
//! ([`ahead()`]). One that is at home encoded ([`Task::encoded`]) is decoded and encoded right beside its uses.

mod ahead;
mod least;
mod rungs;
mod stays;

use memfit_ir::{Bytes, Codec, Device, Form, Phase, Role, Tier, ValueId};

pub(super) use ahead::ahead;
pub(super) use rungs::{or_parked, rungs, without_optimizer_state};
pub(super) use stays::{HomeStay, beside};

use super::Task;
use super::ids::NodeId;
use super::memo::Memo;
use super::transfers::LEAST;
use crate::problem::{bytes, signed};

/// The storages of a task that are at home in another tier, or encoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes {
    list: Vec<Home>,
    /// By value: the storage that it is a version of, by its place in the list. Empty if there is none.
    of: Vec<Option<u32>>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Home {
    /// What it begins with.
    value: ValueId,
    form: Form,
    /// Bytes on the device while it is plain there, rounded up to the alignment.
    bytes: i64,
}

impl Homes {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What begins the step in another form.
    pub(super) fn parked(&self) -> Vec<(ValueId, Form)> {
        self.list.iter().map(|home| (home.value, home.form)).collect()
    }

    /// Whether some are in another tier.
    pub(super) fn are_elsewhere(&self) -> bool {
        self.list.iter().any(|home| home.form.tier().is_some())
    }

    fn of(&self, value: ValueId) -> Option<usize> {
        self.of.get(value.index()).copied().flatten().map(|place| place as usize)
    }
}

/// What is known of a task with homes, by these: searches ask for the same ones in one budget after another.
#[derive(Default)]
struct Known(Vec<(Vec<(ValueId, Form)>, Memo)>);

impl Known {
    fn of(&mut self, homes: &[(ValueId, Form)]) -> Memo {
        let known = self.0.iter().find(|(with, _)| with == homes).map(|(_, memo)| memo.clone());
        known.unwrap_or_else(|| {
            let memo = Memo::default();
            self.0.push((homes.to_vec(), memo.clone()));
            memo
        })
    }
}

/// A storage that may be at home in another tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Movable {
    /// What it begins with.
    pub(super) value: ValueId,
    /// Bytes on the device, rounded up to the alignment.
    pub(super) bytes: i64,
    /// Whether only ops of the update phase use it, and it is state.
    pub(super) is_optimizer_state: bool,
    /// Transfers of a step in which it is on the device for its uses alone: one for each use, and one for each mutation.
    pub(super) transfers: usize,
}

impl<'g> Task<'g> {
    /// Whether some storages are at home in another tier, or encoded.
    pub(super) fn is_parked(&self) -> bool {
        !self.homes.is_empty()
    }

    /// The storages that may be at home in another tier, in the order of the graph. What an op is run again on snapshots of
    /// stays, what is pinned stays, and what is too small to be worth a transfer.
    pub(super) fn movable(&self) -> Vec<Movable> {
        let (source_of, graph) = (self.source_of(), self.graph);
        let mut stays = vec![false; source_of.len()];
        let mut phases = vec![true; source_of.len()];
        let mut transfers = vec![0usize; source_of.len()];
        for node in 0..self.nodes() {
            let is_update = graph.op(self.order[node]).phase == Phase::Update;
            for source in self.reads.row(node).iter().filter_map(|value| source_of[value.index()]) {
                phases[source.index()] &= is_update;
                transfers[source.index()] += 1;
            }
            for pair in self.reuses.row(node).iter().filter(|pair| pair.must) {
                if let Some(source) = source_of[pair.output.index()] {
                    transfers[source.index()] += 1;
                }
            }
            for &(input, _) in self.snapped.row(node) {
                if let Some(source) = source_of[input.index()] {
                    stays[source.index()] = true;
                }
            }
        }
        for value in self.value_ids().filter(|value| graph.value(*value).pin.is_some()) {
            if let Some(source) = source_of[value.index()] {
                stays[source.index()] = true;
            }
        }
        let movable = self.value_ids().filter(|&value| {
            let this = graph.value(value);
            let begins = source_of[value.index()] == Some(value) && this.role.is_persistent();
            begins && !stays[value.index()] && self.bytes[value.index()] >= LEAST
        });
        let each = movable.map(|value| Movable {
            value,
            bytes: self.bytes[value.index()],
            is_optimizer_state: graph.value(value).role == Role::State
                && phases[value.index()]
                && transfers[value.index()] > 0,
            transfers: transfers[value.index()],
        });
        each.collect()
    }

    /// By value: what the storage begins with of which it is a version, if that lasts.
    fn source_of(&self) -> Vec<Option<ValueId>> {
        let begins = |value: ValueId| self.producer[value.index()].is_none() && self.is_resident(value);
        let mut source: Vec<Option<ValueId>> =
            self.value_ids().map(|value| begins(value).then_some(value)).collect();
        for node in 0..self.nodes() {
            for pair in self.reuses.row(node).iter().filter(|pair| pair.must) {
                source[pair.output.index()] = source[pair.input.index()];
            }
        }
        source
    }

    /// The same task with those of `storages` at home in other memories of `device` for which there is room, from the first on: in
    /// the host's, then on the disk.
    fn parked(&self, storages: &[ValueId], device: &Device) -> Task<'g> {
        let limits = device.limits();
        let mut left = Tier::ALL.map(|(tier, _)| match device.link_to(tier) {
            Some(_) => limits.tier(tier),
            None => Bytes::ZERO,
        });
        let mut list = Vec::new();
        for &value in storages {
            let size = self.graph.value(value).size;
            let room = Tier::ALL.into_iter().find(|(tier, _)| left[tier.index()] >= size);
            let Some((tier, _)) = room else { continue };
            left[tier.index()] = left[tier.index()].saturating_sub(size);
            list.push(Home { value, form: Form::Tier(tier), bytes: self.bytes[value.index()] });
        }
        self.at_home(list, 0)
    }

    /// The same task with all optimizer state at home in device memory, encoded by `codec` where that is smaller.
    pub(super) fn encoded(&self, codec: Codec, device: &Device) -> Task<'g> {
        let (mut list, mut kept) = (Vec::new(), 0);
        for Movable { value, bytes, .. } in self.movable().into_iter().filter(|one| one.is_optimizer_state) {
            let this = self.graph.value(value);
            let room = signed(codec.room(&this).round_up(device.align));
            if codec.suits(this.dtype) && room < bytes {
                list.push(Home { value, form: Form::Encoded(codec), bytes });
                kept += room;
            }
        }
        self.at_home(list, kept)
    }

    /// The same task with these homes, which keep so many bytes in device memory.
    fn at_home(&self, list: Vec<Home>, kept: i64) -> Task<'g> {
        let source_of = self.source_of();
        let mut place_of: Vec<Option<u32>> = vec![None; source_of.len()];
        for (place, home) in list.iter().enumerate() {
            place_of[home.value.index()] = u32::try_from(place).ok();
        }
        let mut homes = Homes { list, of: Vec::new() };
        homes.of =
            source_of.iter().map(|source| source.and_then(|source| place_of[source.index()])).collect();
        let mut task = self.clone();
        task.memo = self.memo.with(|known: &mut Known| known.of(&homes.parked()));
        task.constant += kept - homes.list.iter().map(|home| home.bytes).sum::<i64>();
        for node in 0..task.nodes() {
            task.workspace[node] += homes.used_by(self.reads_of(NodeId::at(node), true));
            task.later_workspace[node] += homes.used_by(self.reads_of(NodeId::at(node), false));
        }
        task.homes = homes;
        task
    }

    /// `device` with as much of other memory as what is at home there leaves.
    pub(super) fn spare(&self, device: &Device) -> Device {
        let mut device = device.clone();
        for home in &self.homes.list {
            let size = self.graph.value(home.value).size;
            match (home.form.tier(), &mut device.disk) {
                (Some(Tier::Host), _) => device.host_memory = device.host_memory.saturating_sub(size),
                (Some(Tier::Disk), Some(disk)) => disk.capacity = disk.capacity.saturating_sub(size),
                (Some(Tier::Disk), None) | (None, _) => {}
            }
        }
        device
    }

    /// The least bytes that any schedule in this order needs, whatever is moved over the links of `device`: the storages that an
    /// op touches are there with all else that it touches, and of the others as much as no tier has room for.
    pub(super) fn least_with(&self, device: &Device) -> i64 {
        let limits = device.limits();
        let tiers = Tier::ALL.iter().filter(|(tier, _)| device.link_to(*tier).is_some());
        let room: Bytes = tiers.map(|&(tier, _)| limits.tier(tier)).sum();
        let raw = |value: ValueId| signed(self.graph.value(value).size);
        let source_of = self.source_of();
        let lasts = |value: &ValueId| {
            source_of[value.index()] == Some(*value) && self.graph.value(*value).role.is_persistent()
        };
        let sources: Vec<ValueId> = self.value_ids().filter(lasts).collect();
        let all: i64 = sources.iter().map(|&value| raw(value)).sum();
        let (mut rounded, mut fixed) = (0, self.constant);
        for &value in &sources {
            rounded += self.bytes[value.index()];
        }
        fixed -= rounded; // What lasts and is no parameter, state or constant: a batch that is a result.
        let held = |touched: i64| (all - touched - signed(room)).max(0);
        let ends: i64 =
            self.value_ids().filter(|v| self.live_out[v.index()]).map(|v| self.size[v.index()]).sum();
        let mut least = self.sources.max(ends) + held(0);
        let mut seen: Vec<ValueId> = Vec::new();
        for node in 0..self.nodes() {
            seen.clear();
            for source in self.reads.row(node).iter().filter_map(|value| source_of[value.index()]) {
                if lasts(&source) && !seen.contains(&source) {
                    seen.push(source);
                }
            }
            let touched: i64 = seen.iter().map(|&value| raw(value)).sum();
            let there: i64 = seen.iter().map(|&value| self.bytes[value.index()]).sum();
            least = least.max(self.alone(node) + there + held(touched));
        }
        fixed + least
    }

    /// No schedule in this order needs fewer bytes, whatever may be moved: as [`Task::floor`], but parameters, state and
    /// constants may be at home where the device of the task has room for them.
    #[must_use]
    pub fn least(&self) -> Bytes {
        bytes(self.least.min(crate::problem::signed(self.floor().0)))
    }
}

impl Homes {
    /// Bytes of the storages that are among `reads`, each once.
    fn used_by(&self, reads: &[ValueId]) -> i64 {
        let mut seen: Vec<usize> = Vec::new();
        for place in reads.iter().filter_map(|&value| self.of(value)) {
            if !seen.contains(&place) {
                seen.push(place);
            }
        }
        seen.iter().map(|&place| self.list[place].bytes).sum()
    }
}
