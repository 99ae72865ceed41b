//! Makes the graph of one rank: ops as they are, updates on shares, collective ops where the stage asks for them.

use std::collections::BTreeMap;

use memfit_ir::{
    Algorithm, Bytes, Dtype, Effect, Graph, GraphBuilder, GraphError, Nanos, Op, OpId, OpSpec, Phase, Pin,
    Price, Reuse, Role, Value, ValueId, ValueSpec,
};

use super::collective::{Collective, Traffic};
use super::survey::{Kind, Survey};
use super::units::Units;
use super::{Refused, Sharded, Sharding, Shares, split};

/// Writes the step of one rank, op by op. Ids that stages see are those of the new graph.
pub struct Rewriter<'a> {
    pub(super) graph: &'a Graph,
    pub(super) survey: &'a Survey,
    pub(super) sharding: &'a Sharding<'a>,
    pub(super) shares: Shares,
    pub(super) builder: GraphBuilder,
    /// By value of the new graph: what it is of the old one.
    pub(super) old: Vec<ValueId>,
    /// By value of the old graph: what the rank holds of it.
    pub(super) now: Vec<Option<ValueId>>,
    /// By gradient of the old graph: what updates read of it.
    pub(super) reduced: Vec<Option<ValueId>>,
    /// What has been gathered of a value of the new graph for the ops of a phase.
    pub(super) gathered: BTreeMap<(ValueId, Phase), ValueId>,
    pub(super) units: Units,
    /// Units in the order of their first use.
    pub(super) order: Vec<usize>,
    /// By unit: its buffer, gathered ahead of these shares.
    pub(super) ahead: BTreeMap<usize, (Vec<ValueId>, ValueId)>,
    /// By unit: gradients that wait for the others of it, of the old graph and of the new.
    pub(super) waiting: BTreeMap<usize, Vec<(ValueId, ValueId)>>,
    /// Module of the op that is written, for collective ops beside it.
    pub(super) module: String,
    pub(super) phase: Phase,
    pub(super) traffic: Traffic,
}

impl From<GraphError> for Refused {
    fn from(error: GraphError) -> Refused {
        Refused::graph(
            format!("the step of one rank is no graph: {error}"),
            "fewer values, or smaller ones, are needed",
        )
    }
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        survey: &'a Survey,
        sharding: &'a Sharding<'a>,
    ) -> Result<Rewriter<'a>, Refused> {
        let mut builder = GraphBuilder::new(graph.name());
        builder.replays_random(graph.replays_random());
        Ok(Rewriter {
            graph,
            survey,
            sharding,
            shares: sharding.stage.shares(),
            builder,
            old: Vec::new(),
            now: vec![None; graph.value_count()],
            reduced: vec![None; graph.value_count()],
            gathered: BTreeMap::new(),
            units: Units::of(graph, survey, sharding.units)?,
            order: Vec::new(),
            ahead: BTreeMap::new(),
            waiting: BTreeMap::new(),
            module: String::new(),
            phase: Phase::Forward,
            traffic: Traffic::default(),
        })
    }

    pub(super) fn run(mut self) -> Result<Sharded, Refused> {
        for id in self.graph.value_ids().filter(|&id| self.graph.value(id).producer.is_none()) {
            let is_shared = match self.survey.kind(id) {
                Kind::Parameter => self.shares.parameters,
                Kind::State => self.shares.state,
                Kind::Gradient | Kind::Other => false,
            };
            let new = self.value(id, is_shared)?;
            self.now[id.index()] = Some(new);
        }
        for id in self.graph.op_ids() {
            let op = self.graph.op(id);
            op.module.clone_into(&mut self.module);
            self.phase = op.phase;
            if op.phase == Phase::Update { self.update(id)? } else { self.keep(id)? }
        }
        for &value in self.graph.results() {
            let new = self.reduced[value.index()].or(self.now[value.index()]);
            new.map_or(Ok(()), |new| self.builder.result(new))?;
        }
        let mut holdings = self.survey.shared(self.graph, self.shares, self.sharding.ranks);
        if self.sharding.buckets {
            holdings.buckets = holdings.gradients;
        }
        Ok(Sharded { graph: self.builder.finish()?, holdings, traffic: self.traffic })
    }

    /// Adds `old`, or a share of it, to the new graph.
    pub(super) fn value(&mut self, old: ValueId, is_shared: bool) -> Result<ValueId, Refused> {
        let value = self.graph.value(old);
        let ranks = self.sharding.ranks;
        let spec = if is_shared && split::elements(self.graph, old) > 1 {
            let size = split::share(value.size, value.dtype, ranks);
            let one = value.dtype.bytes();
            let shape = vec![if size.0.is_multiple_of(one) { size.0 / one } else { size.0 }];
            let pin = value.pin.map(|pin| Pin { offset: None, ..pin });
            ValueSpec { name: format!("{}/{ranks}", value.name), size, shape, pin, ..value.to_spec() }
        } else {
            value.to_spec()
        };
        self.add(old, spec)
    }

    pub(super) fn add(&mut self, old: ValueId, spec: ValueSpec) -> Result<ValueId, Refused> {
        self.old.push(old);
        Ok(self.builder.value(spec)?)
    }

    /// What the rank holds of `old`, which the graph has defined before it is read.
    pub(super) fn held(&self, old: ValueId) -> ValueId {
        self.now[old.index()].unwrap_or(old)
    }

    /// An op that is no update, as it is.
    fn keep(&mut self, id: OpId) -> Result<(), Refused> {
        let op = self.graph.op(id);
        let mut reads = Vec::with_capacity(op.reads.len());
        for &read in op.reads {
            let held = self.held(read);
            reads.push(match self.survey.kind(read) {
                Kind::Parameter => self.sharding.stage.used(self, held, op.phase)?,
                _ => held,
            });
        }
        let writes = op.writes.iter().map(|&old| self.value(old, false)).collect::<Result<Vec<_>, _>>()?;
        let spec = spec_of_op(&op, reads, writes.clone());
        self.write(id, spec)?;
        for (&old, &new) in op.writes.iter().zip(&writes) {
            self.now[old.index()] = Some(new);
            if self.survey.kind(old) == Kind::Gradient {
                // What is summed for the update: others go on with what this rank has.
                match self.units.of_gradient(old) {
                    Some(unit) => self.scatter_with(unit, (old, new))?,
                    None => {
                        let reduced = self.sharding.stage.reduce(self, new)?;
                        self.reduced[old.index()] = Some(reduced);
                    }
                }
            }
        }
        Ok(())
    }

    /// An update, on this rank's shares.
    fn update(&mut self, id: OpId) -> Result<(), Refused> {
        let op = self.graph.op(id);
        let units: Vec<usize> = op.reads.iter().filter_map(|&old| self.units.of_gradient(old)).collect();
        units.into_iter().try_for_each(|unit| self.scatter_unit(unit))?;
        let reads: Vec<ValueId> =
            op.reads.iter().map(|&old| self.reduced[old.index()].unwrap_or(self.held(old))).collect();
        let mut writes = Vec::with_capacity(op.writes.len());
        for &old in op.writes {
            // What is overwritten says whether it is a share; what is new is one.
            let over = op.reuses.iter().find(|pair| pair.must && pair.output == old);
            let whole = self.graph.value(old).size;
            let is_shared = match over {
                Some(pair) => {
                    let input = self.reduced[pair.input.index()].unwrap_or(self.held(pair.input));
                    self.builder.size_of(input) != Some(whole)
                }
                None => self.shares.state,
            };
            writes.push(self.value(old, is_shared)?);
        }
        let spec = spec_of_op(&op, reads, writes.clone());
        self.write(id, if self.shares.state { split_work(spec, self.sharding.ranks) } else { spec })?;
        for (&old, &new) in op.writes.iter().zip(&writes) {
            self.now[old.index()] = Some(new);
            let value = self.graph.value(old);
            if self.survey.kind(old) == Kind::Parameter {
                let ends = value.mutator.is_none_or(|by| self.graph.op(by).phase != Phase::Update);
                let is_used = value.readers.iter().any(|&by| self.graph.op(by).phase != Phase::Update);
                if ends || is_used {
                    let updated = self.sharding.stage.updated(self, new)?;
                    self.now[old.index()] = Some(updated);
                }
            } else if self.shares.state && value.over.is_none() && self.is_sum(&op, old) {
                let summed = self.all_reduce(new)?;
                self.now[old.index()] = Some(summed);
            }
        }
        Ok(())
    }

    /// Whether `made` is one element that `op` makes of many: a norm, or whether all are finite.
    fn is_sum(&self, op: &Op<'_>, made: ValueId) -> bool {
        split::elements(self.graph, made) == 1
            && op.reads.iter().any(|&read| split::elements(self.graph, read) > 1)
    }

    /// Adds `spec`, made of op `id`, with the in-place pairs that sizes still allow.
    fn write(&mut self, id: OpId, mut spec: OpSpec) -> Result<(), Refused> {
        let op = self.graph.op(id);
        let of = |old: &[ValueId], new: &[ValueId], what: ValueId| {
            old.iter().position(|&value| value == what).map(|at| new[at])
        };
        for pair in op.reuses {
            let (input, output) =
                (of(op.reads, &spec.reads, pair.input), of(op.writes, &spec.writes, pair.output));
            if let (Some(input), Some(output)) = (input, output)
                && (pair.must || self.builder.size_of(input) == self.builder.size_of(output))
            {
                spec.reuses.push(Reuse { input, output, must: pair.must });
            }
        }
        self.builder.op(spec)?;
        Ok(())
    }

    /// Sums a gradient, or one number, over all ranks; in place where nobody else needs what this rank had.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    pub(super) fn all_reduce(&mut self, value: ValueId) -> Result<ValueId, Refused> {
        if self.sharding.buckets && self.phase != Phase::Update {
            return self.reduce_in_bucket(value);
        }
        let out = self.like(value)?;
        let reuse = Reuse { input: value, output: out, must: false };
        self.collective(Collective::AllReduce, self.phase, (&[value], &[out]), &[reuse])?;
        Ok(out)
    }

    /// Sums a gradient over all ranks in memory that is there before it and stays.
    fn reduce_in_bucket(&mut self, gradient: ValueId) -> Result<ValueId, Refused> {
        let old = self.old[gradient.index()];
        let lasts = |mut spec: ValueSpec| {
            spec.name += ".bucket";
            ValueSpec { role: Role::State, pin: None, ..spec }
        };
        let (before, after) =
            (lasts(self.graph.value(old).to_spec()), lasts(self.graph.value(old).to_spec()));
        let (bucket, out) = (self.add(old, before)?, self.add(old, after)?);
        let reuse = Reuse { input: bucket, output: out, must: true };
        self.collective(Collective::AllReduce, self.phase, (&[gradient, bucket], &[out]), &[reuse])?;
        Ok(out)
    }

    /// This rank's share of the sum of a gradient over all ranks.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    pub(super) fn reduce_scatter(&mut self, gradient: ValueId) -> Result<ValueId, Refused> {
        let old = self.old[gradient.index()];
        if split::elements(self.graph, old) <= 1 {
            return self.all_reduce(gradient);
        }
        let out = self.value(old, true)?;
        self.collective(Collective::ReduceScatter, self.phase, (&[gradient], &[out]), &[])?;
        Ok(out)
    }

    /// Gets the others' shares of a parameter into its own bytes.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    pub(super) fn gather_in_place(&mut self, parameter: ValueId) -> Result<ValueId, Refused> {
        if split::elements(self.graph, self.old[parameter.index()]) <= 1 {
            return Ok(parameter);
        }
        let out = self.like(parameter)?;
        let reuse = Reuse { input: parameter, output: out, must: true };
        self.collective(Collective::AllGather, Phase::Update, (&[parameter], &[out]), &[reuse])?;
        Ok(out)
    }

    /// The whole of a parameter of which the rank holds a share, for the ops of `phase`: gathered at the first of them.
    ///
    /// # Errors
    ///
    /// If the graph gets too large.
    pub(super) fn gather_for(&mut self, value: ValueId, phase: Phase) -> Result<ValueId, Refused> {
        let old = self.old[value.index()];
        if split::elements(self.graph, old) <= 1 {
            return Ok(value);
        }
        if let Some(&whole) = self.gathered.get(&(value, phase)) {
            return Ok(whole);
        }
        if let Some(unit) = self.units.of_value(self.survey.first(old)) {
            self.gather_unit(unit, phase)?;
            if let Some(&whole) = self.gathered.get(&(value, phase)) {
                return Ok(whole);
            }
        }
        let whole = self.whole(old)?;
        self.collective(Collective::AllGather, phase, (&[value], &[whole]), &[])?;
        self.gathered.insert((value, phase), whole);
        Ok(whole)
    }

    /// The whole of a parameter: it comes and goes, so it is no parameter to whoever plans.
    pub(super) fn whole(&mut self, old: ValueId) -> Result<ValueId, Refused> {
        let spec = ValueSpec { role: Role::Activation, pin: None, ..self.graph.value(old).to_spec() };
        self.add(old, spec)
    }

    fn like(&mut self, value: ValueId) -> Result<ValueId, Refused> {
        let old = self.old[value.index()];
        self.value(old, self.builder.size_of(value) != Some(self.graph.value(old).size))
    }

    /// Adds a collective op: about all that it reads, or makes of one buffer, or the first of them where it writes over one.
    pub(super) fn collective(
        &mut self,
        op: Collective,
        phase: Phase,
        (from, to): (&[ValueId], &[ValueId]),
        reuses: &[Reuse],
    ) -> Result<(), Refused> {
        let (ranks, ring) = (self.sharding.ranks, &self.sharding.ring);
        let about = match (reuses.is_empty(), from) {
            (false, _) => &from[..1],
            // A buffer of several: what they are says more.
            (true, [_]) if to.len() > 1 => to,
            (true, _) => from,
        };
        let wholes: Vec<Value<'_>> =
            about.iter().map(|value| self.graph.value(self.old[value.index()])).collect();
        let share = wholes.iter().map(|whole| split::share(whole.size, whole.dtype, ranks)).sum();
        let (sent, time) = op.price(share, ranks, ring);
        self.traffic.sent += sent;
        self.traffic.time = self.traffic.time + time;
        self.traffic.count += 1;
        // All shares are of one size; what that is beyond the value is scratch memory. A sum needs no shares of one size, and a
        // unit's buffer has room for them.
        let scratch = match op {
            Collective::AllReduce => Bytes::ZERO,
            _ if wholes.len() > 1 => Bytes::ZERO,
            _ => wholes.iter().map(|whole| split::padding(whole.size, whole.dtype, ranks)).sum(),
        };
        let size = |value: &ValueId| self.builder.size_of(*value).unwrap_or_default();
        let spec = OpSpec {
            name: format!("{}:{}", op.name(), wholes.first().map_or("", |whole| whole.name)),
            kind: op.kind(),
            module: self.module.clone(),
            phase,
            moved: from.iter().chain(to).map(size).sum(),
            dtype: wholes.first().map_or(Dtype::F32, |whole| whole.dtype),
            time: Some(time),
            workspace: scratch,
            effect: Effect::Collective,
            reads: from.to_vec(),
            writes: to.to_vec(),
            reuses: reuses.to_vec(),
            ..OpSpec::default()
        };
        self.builder.op(spec)?;
        Ok(())
    }
}

/// The same op on other operands, without in-place pairs.
fn spec_of_op(op: &Op<'_>, reads: Vec<ValueId>, writes: Vec<ValueId>) -> OpSpec {
    OpSpec { reads, writes, reuses: Vec::new(), ..op.to_spec() }
}

/// 1/N of the work and of the scratch memory.
fn split_work(spec: OpSpec, ranks: u32) -> OpSpec {
    let n = u64::from(ranks);
    let part = |bytes: Bytes| Bytes(bytes.0.div_ceil(n));
    let time = |time: Nanos| Nanos(time.0.div_ceil(n));
    let algorithm = |algorithm: &Algorithm| Algorithm {
        workspace: part(algorithm.workspace),
        price: match algorithm.price {
            Price::Time(all) => Price::Time(time(all)),
            Price::Work { flops, moved } => Price::Work { flops: flops.div_ceil(n), moved: part(moved) },
        },
    };
    OpSpec {
        flops: spec.flops / f64::from(ranks),
        moved: part(spec.moved),
        time: spec.time.map(time),
        workspace: part(spec.workspace),
        algorithms: spec.algorithms.iter().map(algorithm).collect(),
        ..spec
    }
}
