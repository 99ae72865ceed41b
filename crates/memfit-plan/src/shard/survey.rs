//! Who is what: parameters that are trained, their gradients, the state that only updates touch.

use memfit_ir::{Bytes, Graph, OpId, Phase, Role, ValueId};

use super::collective::Collective;
use super::split::elements;
use super::{Refused, Shares, split};

/// What is found of a graph's step.
pub(super) struct Survey {
    /// By value: the first version of its storage.
    first: Vec<ValueId>,
    /// Parameters that updates and nothing else overwrite: their first versions.
    pub trained: Vec<ValueId>,
    /// By value: what it is to the update, by its first version.
    kind: Vec<Kind>,
    /// Gradients that updates read, in the order in which they are made.
    gradients: Vec<ValueId>,
}

/// What a storage is to the update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A parameter that is used, and overwritten by nothing but the update.
    Parameter,
    /// It lasts, and nothing but the update touches it.
    State,
    /// A gradient that the update reads.
    Gradient,
    /// Anything else.
    #[default]
    Other,
}

/// Bytes that one rank holds of each kind, without alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Parameters.
    pub parameters: Bytes,
    /// Gradients, when the last of them is made.
    pub gradients: Bytes,
    /// What only the update touches.
    pub state: Bytes,
    /// What else lasts: running statistics, constants.
    pub others: Bytes,
    /// Those of the gradients whose memory lasts: buckets.
    pub buckets: Bytes,
}

impl Holdings {
    /// What training holds beside activations: parameters, gradients, state.
    #[must_use]
    pub fn model(&self) -> Bytes {
        self.parameters + self.gradients + self.state
    }

    /// What lives across the step boundary.
    #[must_use]
    pub fn persistent(&self) -> Bytes {
        self.parameters + self.state + self.others + self.buckets
    }
}

impl Survey {
    /// Reads `graph`. Time O(operands).
    ///
    /// # Errors
    ///
    /// If it does not say what is needed, or says what can't be split.
    pub(super) fn of(graph: &Graph) -> Result<Survey, Refused> {
        is_whole(graph)?;
        let mut first: Vec<ValueId> = graph.value_ids().collect();
        for pair in graph.op_ids().flat_map(|op| graph.op(op).reuses).filter(|pair| pair.must) {
            first[pair.output.index()] = first[pair.input.index()];
        }
        let mut touched = vec![Touched::default(); graph.value_count()];
        for id in graph.op_ids() {
            let op = graph.op(id);
            let updates = op.phase == Phase::Update;
            for &value in op.reads {
                touched[first[value.index()].index()].note(updates, graph.value(value).mutator == Some(id));
            }
        }
        let mut survey = Survey {
            kind: vec![Kind::Other; first.len()],
            first,
            trained: Vec::new(),
            gradients: Vec::new(),
        };
        for id in graph.value_ids() {
            let (value, by) = (graph.value(id), touched[id.index()]);
            let lasts = value.producer.is_none() && matches!(value.role, Role::Parameter | Role::State);
            survey.kind[id.index()] = match value.role {
                _ if !lasts => Kind::Other,
                _ if by.update && !by.other => Kind::State,
                // What others read and the update alone overwrites is gathered as parameters are, whatever it is called.
                _ if !by.overwritten && (by.trained || value.role == Role::Parameter) => Kind::Parameter,
                _ => Kind::Other,
            };
            if survey.kind[id.index()] == Kind::Parameter && by.trained && value.role == Role::Parameter {
                survey.trained.push(id);
            }
        }
        if survey.trained.is_empty() {
            return Err(Refused::graph(
                "no update overwrites a parameter: no op of phase `update` has a `must` pair that begins at a value of role `parameter`",
                "a step with its optimizer is needed: `python -m memfit.torch.export MODEL -o graph.json` writes one",
            ));
        }
        survey.find_gradients(graph)?;
        graph
            .op_ids()
            .filter(|&op| graph.op(op).phase == Phase::Update)
            .try_for_each(|op| is_split(graph, op))?;
        survey.stays_within(graph)?;
        Ok(survey)
    }

    /// What the storage of `value` is to the update.
    pub(super) fn kind(&self, value: ValueId) -> Kind {
        self.kind[self.first[value.index()].index()]
    }

    /// The first version of the storage of `value`.
    pub(super) fn first(&self, value: ValueId) -> ValueId {
        self.first[value.index()]
    }

    /// What a rank holds of `graph` where it shares nothing.
    pub(super) fn held(&self, graph: &Graph) -> Holdings {
        self.shared(graph, Shares::default(), 1)
    }

    /// What one of `ranks` holds that share `shares`.
    pub(super) fn shared(&self, graph: &Graph, shares: Shares, ranks: u32) -> Holdings {
        let mut held = Holdings::default();
        let size = |id: ValueId, is_shared: bool| {
            let value = graph.value(id);
            if is_shared { split::share(value.size, value.dtype, ranks) } else { value.size }
        };
        let lasting = graph.value_ids().filter(|&id| {
            let value = graph.value(id);
            value.producer.is_none() && value.role.is_persistent()
        });
        for id in lasting {
            match self.kind(id) {
                Kind::Parameter => held.parameters += size(id, shares.parameters),
                Kind::State => held.state += size(id, shares.state),
                Kind::Gradient | Kind::Other => held.others += size(id, false),
            }
        }
        held.gradients = self.gradients.iter().map(|&id| size(id, shares.gradients)).sum();
        held
    }

    /// The gradients are what updates read of what was made before them.
    fn find_gradients(&mut self, graph: &Graph) -> Result<(), Refused> {
        for id in graph.op_ids().filter(|&op| graph.op(op).phase == Phase::Update) {
            let op = graph.op(id);
            for &read in op.reads {
                let value = graph.value(read);
                let Some(by) = value.producer.map(|by| graph.op(by)) else { continue };
                if by.phase == Phase::Update || self.kind[read.index()] == Kind::Gradient {
                    continue;
                }
                let source = graph.value(self.first[read.index()]);
                let lasts = source.producer.is_none() && source.role.is_persistent();
                if value.role == Role::Gradient && !lasts {
                    self.kind[read.index()] = Kind::Gradient;
                    self.gradients.push(read);
                } else if elements(graph, read) > 1 {
                    let message = format!(
                        "update `{}` reads `{}`, which op `{}` makes and which is no gradient of this step: its role is `{}`{}",
                        op.name,
                        value.name,
                        by.name,
                        value.role.name(),
                        if lasts { ", and its storage lasts from step to step" } else { "" },
                    );
                    return Err(Refused::graph(
                        message,
                        "what updates read of the step itself has role `gradient`; gradients that add up over several steps are not shared",
                    ));
                }
            }
        }
        if self.gradients.is_empty() {
            return Err(Refused::graph(
                "no update reads a gradient: no value of role `gradient` is made before an op of phase `update` and read by it",
                "mark the gradients: `\"role\": \"gradient\"`",
            ));
        }
        // A gradient that goes on in place is its own storage to the update.
        for &gradient in &self.gradients {
            self.first[gradient.index()] = gradient;
        }
        Ok(())
    }

    /// Refuses what updates make of many elements for others than updates to read: they would find a share. So too what others
    /// overwrite as well.
    fn stays_within(&self, graph: &Graph) -> Result<(), Refused> {
        let made = graph.op_ids().filter(|&op| graph.op(op).phase == Phase::Update);
        for value in made.flat_map(|op| graph.op(op).writes) {
            let source = graph.value(self.first[value.index()]);
            let lasts = source.producer.is_none() && source.role.is_persistent();
            if lasts && self.kind(*value) == Kind::Other && elements(graph, *value) > 1 {
                let message =
                    format!("`{}` is overwritten by updates and by other ops", graph.value(*value).name);
                return Err(Refused::graph(
                    message,
                    "no rank can update a share of what others need whole and write",
                ));
            }
            let is_read = |by: &&OpId| graph.op(**by).phase != Phase::Update;
            let Some(&by) = graph.value(*value).readers.iter().find(is_read) else { continue };
            if self.kind(*value) != Kind::Parameter && elements(graph, *value) > 1 {
                let (value, by) = (graph.value(*value).name, graph.op(by));
                let message = format!(
                    "op `{}` of phase `{}` reads `{value}`, which an update makes",
                    by.name,
                    by.phase.name()
                );
                return Err(Refused::graph(
                    message,
                    "parameters alone may be read after their update: the rest is split",
                ));
            }
        }
        Ok(())
    }
}

/// Who touches a storage.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    /// An update.
    update: bool,
    /// Another op.
    other: bool,
    /// An update overwrites it.
    trained: bool,
    /// Another op overwrites it.
    overwritten: bool,
}

impl Touched {
    fn note(&mut self, updates: bool, overwrites: bool) {
        self.update |= updates;
        self.other |= !updates;
        self.trained |= updates && overwrites;
        self.overwritten |= !updates && overwrites;
    }
}

/// That `graph` has a word for everything, and is not one of ours.
fn is_whole(graph: &Graph) -> Result<(), Refused> {
    let export = "a training step with its optimizer is needed: `python -m memfit.torch.export MODEL -o graph.json` writes one";
    if !graph.value_ids().any(|id| graph.value(id).role == Role::Parameter) {
        return Err(Refused::graph("no value has the role `parameter`", export));
    }
    if !graph.op_ids().any(|id| graph.op(id).phase == Phase::Update) {
        return Err(Refused::graph("no op has the phase `update`: there is no optimizer", export));
    }
    let ours = Collective::ALL.map(Collective::kind);
    match graph.op_ids().map(|id| graph.op(id)).find(|op| ours.iter().any(|kind| kind == op.kind)) {
        Some(op) => Err(Refused::graph(
            format!("op `{}` (`{}`) is of a step that is shared already", op.name, op.kind),
            "name the graph that it was made of",
        )),
        None => Ok(()),
    }
}

/// That an update makes as many elements as it reads, or one: then its work can be split.
fn is_split(graph: &Graph, id: OpId) -> Result<(), Refused> {
    let op = graph.op(id);
    let read: Vec<u64> = op.reads.iter().map(|&value| elements(graph, value)).collect();
    let fits = |value: &ValueId| {
        let count = elements(graph, *value);
        count <= 1 || graph.value(*value).over.is_some() || read.contains(&count)
    };
    match op.writes.iter().find(|value| !fits(value)) {
        Some(&value) => Err(Refused::graph(
            format!(
                "update `{}` makes `{}` of {} elements of operands that have other numbers of them: it does not work element by element",
                op.name,
                graph.value(value).name,
                elements(graph, value)
            ),
            "only updates that work element by element can be split",
        )),
        None => Ok(()),
    }
}
