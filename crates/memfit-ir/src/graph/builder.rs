//! Makes graphs, and refuses wrong ones by name.

use super::{Graph, OpRow, Reuse, Role, ValueRow};
use crate::{Algorithm, Bytes, Csr, Dtype, Effect, MAX_COUNT, Nanos, Need, OpId, Phase, Pin, ValueId};

/// What is needed to add an op to a [`GraphBuilder`].
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of `Op`")]
pub struct OpSpec {
    pub name: String,
    pub kind: String,
    pub attributes: Option<String>,
    pub module: String,
    pub phase: Phase,
    pub flops: f64,
    pub moved: Bytes,
    pub dtype: Dtype,
    pub time: Option<Nanos>,
    pub workspace: Bytes,
    pub effect: Effect,
    pub reads: Vec<ValueId>,
    pub needs: Vec<Need>,
    pub writes: Vec<ValueId>,
    pub reuses: Vec<Reuse>,
    pub algorithms: Vec<Algorithm>,
}

/// What is needed to add a value to a [`GraphBuilder`].
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of `Value`")]
pub struct ValueSpec {
    pub name: String,
    pub size: Bytes,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub role: Role,
    pub density: Option<f32>,
    pub sensitivity: Option<f32>,
    pub pin: Option<Pin>,
}

/// Why a graph was refused. Messages name the op or the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GraphError(String);

/// Makes a [`Graph`]; ops are added in an order in which they can run.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    graph: Graph,
    /// For each value: whether an op reads it.
    read: Vec<bool>,
    total: Bytes,
}

impl GraphBuilder {
    /// An empty graph of a model called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> GraphBuilder {
        GraphBuilder { graph: Graph { name: name.into(), ..Graph::default() }, ..GraphBuilder::default() }
    }

    /// States whether the host that the graph comes from replays its random generators; without a word it doesn't.
    pub fn replays_random(&mut self, replays: bool) {
        self.graph.replays_random = replays;
    }

    /// Adds a value that no op has defined yet.
    ///
    /// # Errors
    ///
    /// If there are too many values, or the sum of all sizes reaches 2^62 bytes.
    pub fn value(&mut self, spec: ValueSpec) -> Result<ValueId, GraphError> {
        let id = ValueId::at(self.graph.values.len());
        if id.index() >= MAX_COUNT {
            return Err(GraphError(format!("more than {MAX_COUNT} values")));
        }
        self.grow(spec.size, "value", &spec.name)?;
        if spec.density.is_some_and(|density| !(0.0..=1.0).contains(&density)) {
            return Err(GraphError(format!("value `{}`: density is not between 0 and 1", spec.name)));
        }
        if spec.sensitivity.is_some_and(|sensitivity| !(sensitivity.is_finite() && sensitivity >= 0.0)) {
            return Err(GraphError(format!("value `{}`: sensitivity is not a number from 0 on", spec.name)));
        }
        self.graph.value_names.push(&spec.name);
        self.graph.shapes.push(spec.shape);
        self.graph.values.push(ValueRow {
            size: spec.size,
            dtype: spec.dtype,
            role: spec.role,
            density: spec.density,
            sensitivity: spec.sensitivity,
            pin: spec.pin,
            producer: None,
            mutator: None,
            over: None,
            result: false,
        });
        self.read.push(false);
        Ok(id)
    }

    /// The size of a value added before.
    #[must_use]
    pub fn size_of(&self, value: ValueId) -> Option<Bytes> {
        self.graph.values.get(value.index()).map(|row| row.size)
    }

    /// Adds an op that runs after all ops added before.
    ///
    /// # Errors
    ///
    /// If an operand names no value, is read before it's defined or after its bytes were taken by an in-place
    /// op, or is defined twice; if it has needs, but not one for each operand, or of less than the value where it overwrites that;
    /// if an in-place pair doesn't pair an input with an output of the same size; if
    /// a cost is not a finite, non-negative number; if there are too many ops.
    pub fn op(&mut self, mut spec: OpSpec) -> Result<OpId, GraphError> {
        spec.reuses.sort_by_key(|pair| !pair.must); // Demanded pairs first: files list the two apart.
        let id = OpId::at(self.graph.ops.len());
        let fail = |message: String| Err(GraphError(format!("op `{}`: {message}", spec.name)));
        if id.index() >= MAX_COUNT {
            return Err(GraphError(format!("more than {MAX_COUNT} ops")));
        }
        if !spec.flops.is_finite() || spec.flops < 0.0 {
            return fail(format!("flops `{}` is not a number of operations", spec.flops));
        }
        for &value in spec.reads.iter().chain(&spec.writes) {
            if value.index() >= self.graph.values.len() {
                return fail(format!("{value} is not a value of this graph"));
            }
        }
        for &value in &spec.reads {
            let row = &self.graph.values[value.index()];
            if row.producer.is_none() && !row.role.is_source() {
                return fail(format!("reads {} before an op defines it", self.describe(value)));
            }
            if let Some(by) = row.mutator {
                let by = self.graph.op_names.get(by.index());
                return fail(format!("reads {} after op `{by}` has overwritten it", self.describe(value)));
            }
        }
        let (reads, writes) = (sorted(spec.reads.iter().copied()), sorted(spec.writes.iter().copied()));
        let twice = writes.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        for &value in &spec.writes {
            if self.graph.values[value.index()].producer.is_some() || twice == Some(value) {
                return fail(format!("defines {}, which is defined already", self.describe(value)));
            }
            if self.read[value.index()] || reads.binary_search(&value).is_ok() {
                return fail(format!("defines {}, which has been read already", self.describe(value)));
            }
        }
        check_needs(&mut spec)?;
        self.check_reuses(&spec, &reads, &writes)?;
        let scratch = spec.algorithms.iter().map(|a| a.workspace).max().unwrap_or_default();
        self.grow(spec.workspace.max(scratch), "workspace of op", &spec.name)?;
        for &value in &spec.reads {
            self.read[value.index()] = true;
        }
        for &value in &spec.writes {
            self.graph.values[value.index()].producer = Some(id);
        }
        for pair in spec.reuses.iter().filter(|pair| pair.must) {
            self.graph.values[pair.input.index()].mutator = Some(id);
            self.graph.values[pair.output.index()].over = Some(pair.input);
        }
        self.graph.op_names.push(&spec.name);
        self.graph.ops.push(OpRow {
            kind: self.graph.kinds.id(spec.kind),
            attributes: spec.attributes.map(|text| self.graph.attributes.id(text)),
            module: self.graph.modules.id(spec.module),
            phase: spec.phase,
            effect: spec.effect,
            dtype: spec.dtype,
            flops: spec.flops,
            moved: spec.moved,
            time: spec.time,
            workspace: spec.workspace,
        });
        self.graph.reads.push(spec.reads);
        self.graph.needs.push(spec.needs);
        self.graph.writes.push(spec.writes);
        self.graph.reuses.push(spec.reuses);
        self.graph.algorithms.push(spec.algorithms);
        Ok(id)
    }

    /// Demands that `value` is in memory when the step ends.
    ///
    /// # Errors
    ///
    /// If it names no value.
    pub fn result(&mut self, value: ValueId) -> Result<(), GraphError> {
        match self.graph.values.get_mut(value.index()) {
            Some(row) => row.result = true,
            None => return Err(GraphError(format!("result {value} is not a value of this graph"))),
        }
        Ok(())
    }

    /// Checks the whole and hands it over. The last version of each persistent storage becomes a result.
    ///
    /// # Errors
    ///
    /// If a value has neither an op that defines it nor the role of a source, or a result is overwritten.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        for index in 0..self.graph.values.len() {
            let id = ValueId::at(index);
            let row = self.graph.values[index];
            if row.producer.is_none() && !row.role.is_source() {
                let role = row.role.name();
                let what = self.describe(id);
                return Err(GraphError(format!("{what} has role `{role}`, but no op defines it")));
            }
            match row.mutator {
                Some(by) if row.result => {
                    let by = self.graph.op_names.get(by.index());
                    return Err(GraphError(format!(
                        "result {} is overwritten by op `{by}`",
                        self.describe(id)
                    )));
                }
                None if row.producer.is_none() && row.role.is_persistent() => {
                    self.graph.values[index].result = true;
                }
                _ => {}
            }
        }
        // The last version of a persistent storage: follow in-place mutation from each persistent source.
        let mut persistent: Vec<bool> =
            self.graph.values.iter().map(|row| row.producer.is_none() && row.role.is_persistent()).collect();
        for op in 0..self.graph.ops.len() {
            for pair in self.graph.reuses.row(op).iter().filter(|pair| pair.must) {
                persistent[pair.output.index()] |= persistent[pair.input.index()];
                if persistent[pair.output.index()] && self.graph.values[pair.output.index()].mutator.is_none()
                {
                    self.graph.values[pair.output.index()].result = true;
                }
            }
        }
        let graph = &mut self.graph;
        graph.shrink_to_fit();
        let reads = &graph.reads;
        let pairs = (0..graph.ops.len())
            .flat_map(|op| reads.row(op).iter().map(move |value| (value.index(), OpId::at(op))));
        graph.readers = Csr::from_pairs(graph.values.len(), pairs);
        let reuses = &graph.reuses;
        let may = (0..graph.ops.len()).flat_map(|op| reuses.row(op).iter().filter(|pair| !pair.must));
        let may = may.map(|pair| (pair.output.index(), pair.input));
        graph.may_over = Csr::from_pairs(graph.values.len(), may);
        graph.results = graph.value_ids().filter(|value| graph.values[value.index()].result).collect();
        Ok(self.graph)
    }

    fn describe(&self, value: ValueId) -> String {
        format!("value `{}` ({value})", self.graph.value_names.get(value.index()))
    }

    fn grow(&mut self, size: Bytes, what: &str, name: &str) -> Result<(), GraphError> {
        self.total += size;
        if self.total.0 >= 1 << 62 {
            return Err(GraphError(format!("{what} `{name}`: all sizes together reach 2^62 bytes")));
        }
        Ok(())
    }

    /// Checks the in-place pairs of `spec`, whose sorted operands are `reads` and `writes`.
    fn check_reuses(&self, spec: &OpSpec, reads: &[ValueId], writes: &[ValueId]) -> Result<(), GraphError> {
        let fail = |pair: &Reuse, message: &str| {
            let Reuse { input, output, .. } = pair;
            Err(GraphError(format!("op `{}`: in-place pair {input} → {output} {message}", spec.name)))
        };
        for pair in &spec.reuses {
            if reads.binary_search(&pair.input).is_err() {
                return fail(pair, "starts at a value the op does not read");
            }
            if writes.binary_search(&pair.output).is_err() {
                return fail(pair, "ends at a value the op does not define");
            }
            if self.size_of(pair.input) != self.size_of(pair.output) {
                return fail(pair, "joins values of different size");
            }
        }
        let demanded = || spec.reuses.iter().filter(|pair| pair.must);
        let (inputs, outputs) = (sorted(demanded().map(|p| p.input)), sorted(demanded().map(|p| p.output)));
        let clash =
            inputs.windows(2).chain(outputs.windows(2)).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        match demanded().find(|pair| clash == Some(pair.input) || clash == Some(pair.output)) {
            Some(pair) => fail(pair, "contradicts another demanded pair"),
            None => Ok(()),
        }
    }
}

/// Checks the needs of `spec`; those that say nothing go.
fn check_needs(spec: &mut OpSpec) -> Result<(), GraphError> {
    let (needs, reads) = (spec.needs.len(), spec.reads.len());
    if needs != 0 && needs != reads {
        return Err(GraphError(format!("op `{}`: {needs} needs for {reads} operands", spec.name)));
    }
    let takes = |value: ValueId| spec.reuses.iter().any(|pair| pair.must && pair.input == value);
    let less = |(need, value): (&Need, &ValueId)| *need != Need::Value && takes(*value);
    if let Some(at) = spec.needs.iter().zip(&spec.reads).position(less) {
        let (need, value) = (spec.needs[at].name(), spec.reads[at]);
        return Err(GraphError(format!("op `{}`: overwrites {value} but needs its {need} only", spec.name)));
    }
    if spec.needs.iter().all(|need| *need == Need::Value) {
        spec.needs.clear();
    }
    Ok(())
}

fn sorted(values: impl Iterator<Item = ValueId>) -> Vec<ValueId> {
    let mut values: Vec<ValueId> = values.collect();
    values.sort_unstable();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(builder: &mut GraphBuilder, name: &str, role: Role) -> ValueId {
        builder.value(ValueSpec { name: name.into(), size: Bytes(64), role, ..ValueSpec::default() }).unwrap()
    }

    fn op(name: &str, reads: &[ValueId], writes: &[ValueId]) -> OpSpec {
        OpSpec { name: name.into(), reads: reads.into(), writes: writes.into(), ..OpSpec::default() }
    }

    #[test]
    fn a_mutated_parameter_ends_as_its_last_version() {
        let mut b = GraphBuilder::new("sgd");
        let (old, new) = (value(&mut b, "w", Role::Parameter), value(&mut b, "w'", Role::Parameter));
        let kept = value(&mut b, "table", Role::Constant);
        let mut step = op("step", &[old], &[new]);
        step.reuses.push(Reuse { input: old, output: new, must: true });
        b.op(step).unwrap();
        let graph = b.finish().unwrap();
        assert_eq!(graph.results(), [new, kept]);
        assert_eq!(graph.value(old).readers, [OpId(0)]);
    }

    #[test]
    fn wrong_graphs_are_refused_by_name() {
        let mut b = GraphBuilder::new("bad");
        let (x, y) = (value(&mut b, "x", Role::Input), value(&mut b, "y", Role::Activation));
        let mut errors = vec![
            b.op(op("early", &[y], &[])).unwrap_err(),
            b.op(op("lost", &[ValueId(9)], &[])).unwrap_err(),
            b.op(op("twice", &[x], &[y, y])).unwrap_err(),
            b.op(op("self", &[x], &[x])).unwrap_err(),
            b.op(OpSpec { flops: f64::NAN, ..op("nan", &[x], &[y]) }).unwrap_err(),
        ];
        let mut grab = op("grab", &[x], &[y]);
        grab.reuses.push(Reuse { input: x, output: y, must: true });
        b.op(grab).unwrap();
        errors.push(b.op(op("late", &[x], &[])).unwrap_err());
        errors.push(b.op(op("again", &[], &[y])).unwrap_err());
        let z = value(&mut b, "z", Role::Gradient);
        errors.push(b.finish().unwrap_err());
        let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "op `early`: reads value `y` (v1) before an op defines it",
                "op `lost`: v9 is not a value of this graph",
                "op `twice`: defines value `y` (v1), which is defined already",
                "op `self`: defines value `x` (v0), which has been read already",
                "op `nan`: flops `NaN` is not a number of operations",
                "op `late`: reads value `x` (v0) after op `grab` has overwritten it",
                "op `again`: defines value `y` (v1), which is defined already",
                "value `z` (v2) has role `gradient`, but no op defines it",
            ]
        );
        assert_eq!(z, ValueId(2));
    }
}
