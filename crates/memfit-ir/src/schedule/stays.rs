//! When each stay of a value, or of a form of it, ends.

use std::collections::BTreeMap;

use super::{Action, Form, Schedule, Unscheduled};
use crate::{Graph, OpId, ValueId};

/// A stay's name: they are numbered in the order in which actions begin them, sources first.
pub(super) type StayId = usize;

/// Ends of stays, as one walk over the actions finds them.
pub(super) struct Stays {
    /// By stay: 0 if nothing uses it and it is a source, `k + 1` if action `k` is the last to use it, the largest
    /// number if it is a result.
    last: Vec<usize>,
    /// By stay: whether it is the one place of a storage that lasts.
    home: Vec<bool>,
    /// By value: whether it is a version of such a storage.
    lasting: Vec<bool>,
    /// By value: its latest stay, unless a run has mutated it.
    here: Vec<Option<StayId>>,
    /// The latest stays of forms.
    forms: BTreeMap<(ValueId, Form), StayId>,
    /// By value: the form in which the storage that it is a version of is at home, if that's not plain in device memory.
    forms_at_home: Vec<Option<Form>>,
}

impl Stays {
    /// The stays of `schedule`.
    pub(super) fn of(graph: &Graph, schedule: &Schedule) -> Result<Stays, Unscheduled> {
        let mut stays = Stays::start(graph, &schedule.parked)?;
        for (at, &action) in schedule.actions.iter().enumerate() {
            stays.act(graph, at, action)?;
        }
        stays.keep_results(graph).map_or(Ok(stays), Err)
    }

    /// Leaves out the actions that can't be done; the stays of the others.
    pub(super) fn of_doable(graph: &Graph, actions: &mut Vec<Action>) -> Stays {
        let mut stays = Stays::empty(graph);
        stays.sources(graph);
        let mut at = 0;
        actions.retain(|&action| {
            let doable = stays.act(graph, at, action).is_ok();
            at += usize::from(doable);
            doable
        });
        stays.keep_results(graph);
        stays
    }

    /// Whether `stay` ends right after action `at`.
    pub(super) fn ends_at(&self, stay: StayId, at: usize) -> bool {
        self.last.get(stay) == Some(&(at + 1))
    }

    /// Whether `stay` is a source that nothing uses.
    pub(super) fn is_unused(&self, stay: StayId) -> bool {
        self.last.get(stay) == Some(&0)
    }

    /// Whether `stay` is the one place of a storage that lasts.
    pub(super) fn is_home(&self, stay: StayId) -> bool {
        self.home.get(stay) == Some(&true)
    }

    /// Whether `value` is a version of a storage that lasts.
    pub(super) fn is_lasting(&self, value: ValueId) -> bool {
        self.lasting[value.index()]
    }

    /// The form in which the storage that `value` is a version of begins and ends, if that's not plain in device memory.
    pub(super) fn parked(&self, value: ValueId) -> Option<Form> {
        self.forms_at_home[value.index()]
    }

    fn empty(graph: &Graph) -> Stays {
        let count = graph.value_count();
        Stays {
            last: Vec::with_capacity(count),
            home: Vec::with_capacity(count),
            lasting: graph.lasting(),
            here: vec![None; count],
            forms: BTreeMap::new(),
            forms_at_home: vec![None; count],
        }
    }

    fn start(graph: &Graph, parked: &[(ValueId, Form)]) -> Result<Stays, Unscheduled> {
        let mut stays = Stays::empty(graph);
        for &(value, form) in parked {
            let begins = |value: ValueId| {
                let this = graph.value(value);
                this.producer.is_none() && this.role.is_persistent() && stays.lasting[value.index()]
            };
            let is_new = value.index() < graph.value_count() && stays.forms_at_home[value.index()].is_none();
            if !is_new || !begins(value) || matches!(form, Form::EncodedOn(..)) {
                return Err(Unscheduled::NotParked { value });
            }
            stays.forms_at_home[value.index()] = Some(form);
        }
        // Its later versions have the same home.
        if !parked.is_empty() {
            for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
                stays.forms_at_home[pair.output.index()] = stays.forms_at_home[pair.input.index()];
            }
        }
        stays.sources(graph);
        Ok(stays)
    }

    /// What is there before the first action.
    fn sources(&mut self, graph: &Graph) {
        for value in graph.value_ids().filter(|&value| graph.value(value).producer.is_none()) {
            match self.forms_at_home[value.index()] {
                Some(form) => {
                    let stay = self.begin(0, false);
                    self.forms.insert((value, form), stay);
                }
                None => {
                    let home = self.lasting[value.index()];
                    self.here[value.index()] = Some(self.begin(0, home));
                }
            }
        }
    }

    fn begin(&mut self, last: usize, home: bool) -> StayId {
        self.last.push(last);
        self.home.push(home);
        self.last.len() - 1
    }

    fn at_home(&self, value: ValueId) -> bool {
        self.here[value.index()].is_some_and(|stay| self.home[stay])
    }

    /// Does what action `at` does to the stays; nothing at all if it can't be done.
    fn act(&mut self, graph: &Graph, at: usize, action: Action) -> Result<(), Unscheduled> {
        let unknown = Unscheduled::Unknown { action: at };
        match action {
            Action::Run { op, algorithm } => {
                let known = op.index() < graph.op_count();
                if !known || usize::from(algorithm) > graph.op(op).algorithms.len() {
                    return Err(unknown);
                }
                return self.run(graph, at, op);
            }
            Action::Store(value, _) | Action::Load(value, _) | Action::Release(value, _)
                if value.index() >= graph.value_count() =>
            {
                return Err(unknown);
            }
            Action::Store(value, form) => {
                self.use_plain(at, value)?;
                if let Form::EncodedOn(_, codec) = form {
                    let encoded = Form::Encoded(codec);
                    if self.use_form(at, value, encoded).is_err() {
                        self.store(graph, at, (value, encoded));
                    }
                }
                self.store(graph, at, (value, form));
            }
            Action::Load(value, _) if self.at_home(value) => {
                return Err(Unscheduled::AtHome { action: at, value });
            }
            Action::Load(value, form) => {
                self.use_form(at, value, form)?;
                self.here[value.index()] = Some(self.begin(at + 1, false));
            }
            Action::Release(value, None) => self.use_plain(at, value)?,
            Action::Release(value, Some(form)) => self.use_form(at, value, form)?,
        }
        Ok(())
    }

    fn store(&mut self, graph: &Graph, at: usize, (value, form): (ValueId, Form)) {
        if let Some((key, stay)) = home_before(graph, self.parked(value), (value, form), &self.forms) {
            // Not given back, but taken over.
            self.last[stay] = usize::MAX;
            self.forms.remove(&key);
        }
        let stay = self.begin(at + 1, false);
        self.forms.insert((value, form), stay);
    }

    fn run(&mut self, graph: &Graph, at: usize, op: OpId) -> Result<(), Unscheduled> {
        let op = graph.op(op);
        if let Some(&value) = op.reads.iter().find(|value| self.here[value.index()].is_none()) {
            return Err(Unscheduled::Missing { action: at, value, form: None });
        }
        for &value in op.reads {
            self.use_plain(at, value)?;
        }
        let mut homes: Vec<ValueId> = Vec::new();
        for pair in op.reuses.iter().filter(|pair| pair.must) {
            let stay = self.here[pair.input.index()].take();
            if stay.is_some_and(|stay| self.home[stay]) {
                homes.push(pair.output);
            }
        }
        for &value in op.writes {
            let stay = self.begin(at + 1, homes.contains(&value));
            if !self.at_home(value) {
                self.here[value.index()] = Some(stay);
            }
        }
        Ok(())
    }

    fn use_plain(&mut self, at: usize, value: ValueId) -> Result<(), Unscheduled> {
        let missing = Unscheduled::Missing { action: at, value, form: None };
        let stay = self.here[value.index()].ok_or(missing)?;
        self.last[stay] = at + 1;
        Ok(())
    }

    fn use_form(&mut self, at: usize, value: ValueId, form: Form) -> Result<(), Unscheduled> {
        let missing = Unscheduled::Missing { action: at, value, form: Some(form) };
        let stay = *self.forms.get(&(value, form)).ok_or(missing)?;
        self.last[stay] = at + 1;
        Ok(())
    }

    /// Results stay to the end. The first that is missing, if any.
    fn keep_results(&mut self, graph: &Graph) -> Option<Unscheduled> {
        let mut missing = None;
        for &value in graph.results() {
            let (stay, without) = match self.parked(value) {
                None => (self.here[value.index()], Unscheduled::NoResult { value }),
                Some(form) => (self.forms.get(&(value, form)).copied(), Unscheduled::NotBack { value, form }),
            };
            match stay {
                Some(stay) => self.last[stay] = usize::MAX,
                None => missing = missing.or(Some(without)),
            }
        }
        missing
    }
}

/// What an encoded home holds, of `forms`, when `value` is stored there in `form`: the version whose bytes that takes over, with what is
/// known of it. `None` where the storage of `value` has no such home.
pub(super) fn home_before<T: Copy>(
    graph: &Graph,
    home: Option<Form>,
    (value, form): (ValueId, Form),
    forms: &BTreeMap<(ValueId, Form), T>,
) -> Option<((ValueId, Form), T)> {
    let is_home = matches!(form, Form::Encoded(_)) && home == Some(form);
    let mut versions = std::iter::successors(Some(value), |&version| graph.value(version).over);
    let held = |version: ValueId| forms.get(&(version, form)).map(|&held| ((version, form), held));
    if is_home { versions.find_map(held) } else { None }
}
