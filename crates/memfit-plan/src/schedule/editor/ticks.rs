//! What the lane does before, in and after each run, told to the clock.
//!
//! A value's copy is begun after the last run that touches it before it goes, and its bytes go after the run at the first end of
//! its absence, once the copy is there. It is fetched before its next event, and waited for at the first that uses it. If it is
//! made anew before anything uses it, it was simply dropped, and nothing moves. What is encoded in device memory is so right
//! when it goes. The lowering of a schedule says the same in steps of a program.

use memfit_ir::{Device, Form, ValueId};

use super::clock::{Clock, Told};
use super::machine::{Links, Moment, Way};
use super::{Away, Editor};
use crate::problem::signed;
use crate::schedule::ids::RunId;
use crate::schedule::transfers::Leave;

/// Work that a block is, which runs again: about as much as so many events.
const BLOCK: u64 = 48;

/// The runs beside which a value that is away moves, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trip {
    /// Its copy is begun after this run, and its bytes go after that one.
    store: RunId,
    gone: RunId,
    /// It is fetched before this run.
    back: RunId,
    /// It is waited for before this run, or after it where it leaves from there without having been used.
    used: RunId,
    after: bool,
}

/// See the head of the file.
pub(super) struct Ticks {
    pub(super) clock: Clock,
    device: Device,
    /// By run: places of what is away by trips that it is part of.
    by_run: Vec<Vec<usize>>,
    /// By place.
    trips: Vec<Option<Trip>>,
}

impl Ticks {
    /// Nothing is away yet.
    pub(super) fn new(editor: &Editor<'_, '_>, device: &Device) -> Ticks {
        let run = |block: usize, moment: &mut Moment, links: &Links| {
            Block { editor, trips: &[], by_run: &[], device, links }.run(block, moment);
        };
        let clock = Clock::new(Links::of(device), editor.runs.blocks(), run);
        Ticks { clock, device: device.clone(), by_run: Vec::new(), trips: Vec::new() }
    }

    /// What the clock says of `editor`, and the work that it took to say it.
    pub(super) fn read(&mut self, editor: &Editor<'_, '_>) -> (Told, u64) {
        let Ticks { clock, device, by_run, trips } = self;
        let run = |block: usize, moment: &mut Moment, links: &Links| {
            Block { editor, trips, by_run, device, links }.run(block, moment);
        };
        let before = clock.blocks_run();
        let told = clock.read(run);
        (told, BLOCK * (clock.blocks_run() - before))
    }

    /// Enters the trip of what is away by `place`, or that there is none.
    fn set(&mut self, editor: &Editor<'_, '_>, place: usize, trip: Option<Trip>) {
        if self.trips.len() <= place {
            self.trips.resize(place + 1, None);
        }
        for is_new in [false, true] {
            let Some(trip) = (if is_new { trip } else { self.trips[place] }) else { continue };
            let mut runs = [trip.store, trip.gone, trip.back, trip.used];
            runs.sort_unstable();
            for (at, run) in runs.into_iter().enumerate() {
                if at > 0 && runs[at - 1] == run {
                    continue;
                }
                if self.by_run.len() <= run.index() {
                    self.by_run.resize(run.index() + 1, Vec::new());
                }
                let here = &mut self.by_run[run.index()];
                if is_new {
                    here.push(place)
                } else {
                    here.retain(|&other| other != place)
                }
                self.clock.touch(editor.runs.block_of(run));
            }
        }
        self.trips[place] = trip;
    }
}

impl Editor<'_, '_> {
    /// Bytes of device memory that a value takes while it is away.
    pub(super) fn packed(&self, away: Away) -> i64 {
        match (away.form, &self.ticks) {
            (Form::Encoded(codec), Some(ticks)) => {
                signed(codec.room(&self.task.graph.value(away.value)).round_up(ticks.device.align))
            }
            _ => 0,
        }
    }

    /// `run` comes or goes, and with it events of `values`: their trips are others.
    pub(super) fn touch(&mut self, run: RunId) {
        let Some(ticks) = &mut self.ticks else { return };
        ticks.clock.touch(self.runs.block_of(run));
        // The first run takes the snapshots for the others.
        ticks.clock.touch(self.runs.block_of(RunId::first(self.runs.node(run))));
    }

    /// Finds the trips of all of `values` anew.
    pub(super) fn find_noted_trips(&mut self) {
        if self.is_any_away() {
            for at in 0..self.values.len() {
                self.find_trips(self.values[at]);
            }
        }
    }

    /// Finds the trips of `value` anew.
    pub(super) fn find_trips(&mut self, value: ValueId) {
        if self.absences.of(value).is_empty() {
            return;
        }
        let Some(mut ticks) = self.ticks.take() else { return };
        let mut places: Vec<usize> = self.absences.of(value).to_vec();
        places.sort_unstable();
        let mut found: Vec<(usize, Trip)> = Vec::with_capacity(places.len());
        self.each_trip(value, |place, trip| found.push((place, trip)));
        for place in places {
            let trip = found.iter().find(|&&(other, _)| other == place).map(|&(_, trip)| trip);
            if ticks.trips.get(place).copied().flatten() != trip {
                ticks.set(self, place, trip);
            }
        }
        self.ticks = Some(ticks);
    }

    /// What is away by `place` is not any more.
    pub(super) fn forget_trip(&mut self, place: usize) {
        let Some(mut ticks) = self.ticks.take() else { return };
        ticks.set(self, place, None);
        self.ticks = Some(ticks);
    }

    /// Calls `each` with the trips of `value`, in order.
    fn each_trip(&self, value: ValueId, mut each: impl FnMut(usize, Trip)) {
        // The run that last touched it; by what it's away; what was fetched and is not waited for.
        let mut touched: Option<RunId> = None;
        let mut away: Option<(usize, RunId, RunId)> = None;
        let mut fetched: Option<(usize, Trip)> = None;
        for &run in self.events(value) {
            let is_operand = self.operand_at(self.runs.node(run), value).is_some();
            let back = away.take().filter(|_| !self.defines(run, value));
            // What is made anew before anything has used it was fetched for nothing, and so was not.
            fetched = fetched.filter(|_| !self.defines(run, value));
            if let Some((place, store, gone)) = back {
                fetched = Some((place, Trip { store, gone, back: run, used: run, after: false }));
                touched = Some(run);
            }
            if is_operand {
                if let Some((place, trip)) = fetched.take() {
                    each(place, Trip { used: run, ..trip });
                }
                touched = Some(run);
            }
            if let Some(place) = self.absences.beginning(value, run) {
                // A source may leave before anything has touched it: after the run of its end then.
                let store = touched.unwrap_or(run);
                if let Some((place, trip)) = fetched.take() {
                    each(place, Trip { used: store, after: true, ..trip });
                }
                let encoded = self.absences.get(place).is_some_and(|away| away.form.tier().is_none());
                away = Some((place, if encoded { run } else { store }, run));
            }
        }
    }

    /// What is away, as actions say it, in the order in which copies are begun.
    pub(super) fn leaves(&self) -> Vec<Leave> {
        let Some(ticks) = &self.ticks else { return Vec::new() };
        let at = |run: RunId| self.runs.position(run);
        let leaves = self.absences.places().filter_map(|place| {
            let (away, trip) = (self.absences.get(place)?, ticks.trips.get(place).copied().flatten()?);
            Some(Leave {
                value: away.value,
                form: away.form,
                store: at(trip.store) + 1,
                gone: at(trip.gone),
                back: at(trip.back),
                used: at(trip.used),
                kept: false,
            })
        });
        let mut leaves: Vec<Leave> = leaves.collect();
        leaves.sort_by_key(|leave| (leave.store, leave.used, leave.value));
        leaves
    }
}

/// A block of the runs of an editor.
struct Block<'a, 't, 'g> {
    editor: &'a Editor<'t, 'g>,
    trips: &'a [Option<Trip>],
    by_run: &'a [Vec<usize>],
    device: &'a Device,
    links: &'a Links,
}

impl Block<'_, '_, '_> {
    fn run(&self, block: usize, moment: &mut Moment) {
        for position in self.editor.runs.positions(block) {
            let run = self.editor.runs.at(position);
            let places: &[usize] = self.by_run.get(run.index()).map_or(&[], Vec::as_slice);
            if !places.is_empty() {
                self.before(run, places, moment);
            }
            moment.work(self.time(run));
            if !places.is_empty() {
                self.after(run, places, moment);
            }
        }
    }

    /// Of `places` those whose trips are as `which` says, by its key.
    fn trips<K: Ord>(&self, places: &[usize], which: impl Fn(Away, Trip) -> Option<K>) -> Vec<(usize, Away)> {
        let found = places.iter().filter_map(|&place| {
            let (away, trip) = (self.editor.absences.get(place)?, self.trips.get(place).copied().flatten()?);
            Some((which(away, trip)?, place, away))
        });
        let mut found: Vec<(K, usize, Away)> = found.collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found.into_iter().map(|(_, place, away)| (place, away)).collect()
    }

    fn at(&self, run: RunId) -> usize {
        self.editor.runs.position(run)
    }

    /// Fetches what comes back before `run`, and waits for what it uses.
    fn before(&self, run: RunId, places: &[usize], moment: &mut Moment) {
        let key = |away: Away, trip: Trip| (self.at(trip.used), self.at(trip.store), away.value);
        for (place, away) in self.trips(places, |away, trip| (trip.back == run).then(|| key(away, trip))) {
            match away.form {
                Form::Tier(tier) | Form::EncodedOn(tier, _) => {
                    moment.wait(self.links, (tier, Way::Out), place);
                    moment.begin(self.links, (tier, Way::In), place, self.size(away));
                }
                Form::Encoded(codec) => moment.work(self.device.codec_times(codec, self.size(away)).1.0),
            }
        }
        let node = self.editor.runs.node(run);
        let used = |away: Away, trip: Trip| {
            (trip.used == run && !trip.after).then(|| self.editor.operand_at(node, away.value))
        };
        for (place, away) in self.trips(places, used) {
            self.arrive(place, away, moment);
        }
    }

    /// Begins the copies of what leaves after `run`, and waits for those whose bytes go then: right away where that is the same
    /// run.
    fn after(&self, run: RunId, places: &[usize], moment: &mut Moment) {
        let used = |away: Away, trip: Trip| (trip.used == run && trip.after).then_some(away.value);
        for (place, away) in self.trips(places, used) {
            self.arrive(place, away, moment);
        }
        let key = |away: Away, trip: Trip| (self.at(trip.store), self.at(trip.used), away.value);
        for (place, away) in self.trips(places, |away, trip| (trip.store == run).then(|| key(away, trip))) {
            match away.form {
                Form::Tier(tier) | Form::EncodedOn(tier, _) => {
                    moment.begin(self.links, (tier, Way::Out), place, self.size(away));
                    if self.trips[place].is_some_and(|trip| trip.gone == run) {
                        moment.wait(self.links, (tier, Way::Out), place);
                    }
                }
                Form::Encoded(codec) => moment.work(self.device.codec_times(codec, self.size(away)).0.0),
            }
        }
        for (place, away) in self.trips(places, |away, trip| (trip.gone == run).then(|| key(away, trip))) {
            if let Some(tier) = away.form.tier() {
                moment.wait(self.links, (tier, Way::Out), place);
            }
        }
    }

    fn arrive(&self, place: usize, away: Away, moment: &mut Moment) {
        if let Some(tier) = away.form.tier() {
            moment.wait(self.links, (tier, Way::In), place);
            moment.discard(tier, self.size(away));
        }
    }

    fn size(&self, away: Away) -> memfit_ir::Bytes {
        self.editor.task.graph.value(away.value).size
    }

    /// Ns that `run` takes: a first run takes the snapshots for later ones.
    fn time(&self, run: RunId) -> u64 {
        let (task, node) = (self.editor.task, self.editor.runs.node(run));
        if node.index() == task.nodes() {
            return 0;
        }
        // An op that runs once takes none.
        let times = if self.editor.runs.copies(node) > 1 { &task.later_cost } else { &task.cost };
        times[node.index()].saturating_add_signed(self.editor.longer(node))
    }
}
