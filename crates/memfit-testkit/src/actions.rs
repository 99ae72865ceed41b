//! Schedules with runs, stores, loads and releases, valid by construction.
//!
//! Ops run in the graph's own order. Between them anything that can be done is done at random: values are stored in
//! every form, loaded back, released, and ops run again. Storages that last may begin in another tier: they are loaded before
//! they are used, and what they hold at the end is stored there. Only what nothing derives can go wrong is left out: no op
//! runs again that must not, and nothing is loaded that is in its home.

use memfit_ir::{Action, Codec, Effect, Form, Graph, OpId, Schedule, Tier, ValueId};

use crate::Rng;

/// Forms without loss.
const FORMS: [Form; 5] = [
    Form::Tier(Tier::Host),
    Form::Tier(Tier::Disk),
    Form::Encoded(Codec::Zvc),
    Form::EncodedOn(Tier::Host, Codec::Zvc),
    Form::EncodedOn(Tier::Disk, Codec::Zvc),
];

struct Writer<'a> {
    graph: &'a Graph,
    rng: &'a mut Rng,
    replays_random: bool,
    actions: Vec<Action>,
    /// By value: whether it is in device memory, or could have been left there.
    here: Vec<bool>,
    /// By value: whether that is the home of a storage that lasts.
    home: Vec<bool>,
    stored: Vec<(ValueId, Form)>,
    ran: Vec<OpId>,
    parked: Vec<(ValueId, Form)>,
    /// By value: the form in which the storage that it is a version of is at home, if that's not plain in device memory.
    homes: Vec<Option<Form>>,
}

/// A random schedule of `graph`, in which seeded ops may run again where `replays_random` says so.
#[must_use]
pub fn schedule(graph: &Graph, replays_random: bool, rng: &mut Rng) -> Schedule {
    let lasting = graph.lasting();
    let is_source = |value: ValueId| graph.value(value).producer.is_none();
    let mut writer = Writer {
        graph,
        replays_random,
        actions: Vec::new(),
        here: graph.value_ids().map(is_source).collect(),
        home: graph.value_ids().map(|value| is_source(value) && lasting[value.index()]).collect(),
        stored: Vec::new(),
        ran: Vec::new(),
        parked: Vec::new(),
        homes: vec![None; graph.value_count()],
        rng,
    };
    writer.park();
    let restless = 20 + writer.rng.below(60);
    for op in graph.op_ids() {
        while writer.rng.chance(restless) {
            writer.disturb();
        }
        writer.run(op);
        writer.ran.push(op);
    }
    while writer.rng.chance(restless) {
        writer.disturb();
    }
    writer.bring_home();
    Schedule { actions: writer.actions, parked: writer.parked }
}

impl Writer<'_> {
    /// Has some of the storages that last begin in another tier, or encoded.
    fn park(&mut self) {
        for value in self.graph.value_ids() {
            let persistent = self.graph.value(value).role.is_persistent();
            if !(persistent && self.home[value.index()] && self.rng.chance(35)) {
                continue;
            }
            let form = match self.rng.below(10) {
                0..2 => Form::Encoded(Codec::Zvc),
                2..5 => Form::Tier(Tier::Disk),
                _ => Form::Tier(Tier::Host),
            };
            (self.here[value.index()], self.home[value.index()]) = (false, false);
            self.parked.push((value, form));
            self.homes[value.index()] = Some(form);
            self.stored.push((value, form));
        }
        for pair in self.graph.op_ids().flat_map(|op| self.graph.op(op).reuses).filter(|pair| pair.must) {
            self.homes[pair.output.index()] = self.homes[pair.input.index()];
        }
    }

    /// Stores what parked storages hold at the end, where it's not there already.
    fn bring_home(&mut self) {
        for value in self.graph.value_ids() {
            let Some(form) = self.homes[value.index()].filter(|_| self.graph.is_result(value)) else {
                continue;
            };
            if !self.stored.contains(&(value, form)) || self.here[value.index()] && self.rng.chance(20) {
                self.actions.push(Action::Store(value, form));
            }
        }
    }

    /// One thing that no first run is; or nothing, where chance names what can't be done.
    fn disturb(&mut self) {
        let values: Vec<ValueId> = self.graph.value_ids().filter(|value| self.here[value.index()]).collect();
        match self.rng.below(8) {
            0..2 => {
                let Some(value) = self.rng.pick(&values) else { return };
                let form = FORMS[self.rng.below(FORMS.len())];
                self.actions.push(Action::Store(value, form));
                if form.tier().is_some() {
                    self.stored.push((value, form));
                }
                if let Form::EncodedOn(_, codec) | Form::Encoded(codec) = form {
                    self.encoded(value, Form::Encoded(codec));
                }
            }
            2..4 => {
                let home = |&(value, _): &(ValueId, Form)| self.home[value.index()];
                let away: Vec<(ValueId, Form)> =
                    self.stored.iter().copied().filter(|stored| !home(stored)).collect();
                let Some((value, form)) = self.rng.pick(&away) else { return };
                self.actions.push(Action::Load(value, form));
                self.here[value.index()] = true;
            }
            4 => {
                let Some(value) = self.rng.pick(&values) else { return };
                self.actions.push(Action::Release(value, None));
            }
            5 => {
                let Some((value, form)) = self.rng.pick(&self.stored) else { return };
                self.actions.push(Action::Release(value, Some(form)));
            }
            _ => {
                let again: Vec<OpId> = self.ran.iter().copied().filter(|&op| self.may_run(op)).collect();
                let Some(op) = self.rng.pick(&again) else { return };
                self.run(op);
            }
        }
    }

    /// Notes that `value` is there in `form`: in an encoded home in the place of the version before.
    fn encoded(&mut self, value: ValueId, form: Form) {
        let mut versions = std::iter::successors(Some(value), |&version| self.graph.value(version).over);
        let before = versions.find(|&version| self.stored.contains(&(version, form)));
        if let Some(before) = before.filter(|_| self.homes[value.index()] == Some(form)) {
            self.stored.retain(|&stored| stored != (before, form));
        }
        self.stored.push((value, form));
    }

    /// Whether `op` may run again now.
    fn may_run(&self, op: OpId) -> bool {
        let op = self.graph.op(op);
        let effect = match op.effect {
            Effect::Pure => true,
            Effect::Seeded => self.replays_random,
            Effect::Once | Effect::Collective => false,
        };
        // A result that were mutated again would be gone.
        let mutated = op.reuses.iter().filter(|pair| pair.must);
        let kept = |input: ValueId| self.graph.is_result(input);
        effect
            && op.reads.iter().all(|value| self.here[value.index()])
            && !mutated.clone().any(|pair| kept(pair.input))
    }

    fn run(&mut self, id: OpId) {
        let op = self.graph.op(id);
        for &value in op.reads {
            if let Some(form) = self.homes[value.index()].filter(|_| !self.here[value.index()]) {
                self.actions.push(Action::Load(value, form));
                self.here[value.index()] = true;
            }
        }
        let algorithm = u16::try_from(self.rng.below(op.algorithms.len() + 1)).unwrap_or(0);
        self.actions.push(Action::Run { op: id, algorithm });
        for &value in op.writes {
            self.here[value.index()] = true;
        }
        for pair in op.reuses.iter().filter(|pair| pair.must) {
            self.here[pair.input.index()] = false;
            let home = std::mem::replace(&mut self.home[pair.input.index()], false);
            self.home[pair.output.index()] |= home;
        }
    }
}
