//! `cargo xtask bench ordering`: every order on every corpus graph and on generated graphs of 100,000 ops.

use std::time::Instant;

use anyhow::{Result, bail};
use memfit::input;
use memfit_ir::{Bytes, Graph, GraphBuilder, InPlace, OpSpec, Reuse, Role, ValueId, ValueSpec};
use memfit_plan::Context;
use memfit_plan::order::{Model, ORDERS, best};

use crate::{corpus, markdown};

const OPS: usize = 100_000;

pub(crate) fn run() -> Result<String> {
    let mut rows = Vec::new();
    for (name, graph) in corpus()? {
        rows.push(row(name, &graph)?);
    }
    rows.push(row("generated: training".to_owned(), &training(OPS)?)?);
    rows.push(row("generated: wide".to_owned(), &wide(OPS)?)?);
    rows.push(row("generated: tree".to_owned(), &tree(OPS)?)?);
    for ops in [20, 60, 120, 250, 1000] {
        rows.push(mean_row(ops)?);
    }
    let mut head: Vec<&str> = vec!["graph", "ops", "bound"];
    head.extend(ORDERS.iter().map(|order| order.info().name));
    head.push("seconds of best");
    Ok(format!(
        "Peaks of live bytes, divided by the bound that no order is under. 1: optimal.\n\n{}",
        markdown(&head, &rows)
    ))
}

/// Peaks of all orders. An error if `best` is above another.
fn row(name: String, graph: &Graph) -> Result<Vec<String>> {
    let device = input::device("A100-80")?;
    let context = Context::new(&device);
    let model = Model::new(graph, device.align, InPlace::May);
    let start = Instant::now();
    let found = best(&model, &context);
    let seconds = start.elapsed().as_secs_f64();
    let bound = found.bound.max(model.bound_around(&found.order));
    let mut row = vec![name, graph.op_count().to_string(), bound.to_string()];
    for order in ORDERS {
        let peak = model.peak(&order.arrange(&model, &context));
        if peak < found.peak {
            bail!("`{}`: `{}` has a peak of {peak}, `best` {}", row[0], order.info().name, found.peak);
        }
        row.push(if peak == bound { "1".to_owned() } else { format!("{:.4}", peak.ratio(bound)) });
    }
    row.push(format!("{seconds:.3}"));
    Ok(row)
}

/// Mean ratios over random graphs of `ops` ops.
fn mean_row(ops: usize) -> Result<Vec<String>> {
    let device = input::device("A100-80")?;
    let context = Context::new(&device);
    let mut sums = vec![0.0; ORDERS.len()];
    let (mut seconds, mut proved) = (0.0, 0);
    for seed in 1..=GRAPHS {
        let model = Model::new(&random(ops, seed)?, device.align, InPlace::May);
        let start = Instant::now();
        let found = best(&model, &context);
        seconds += start.elapsed().as_secs_f64();
        proved += usize::from(found.peak == found.bound);
        for (sum, order) in sums.iter_mut().zip(ORDERS) {
            *sum += model.peak(&order.arrange(&model, &context)).ratio(found.bound);
        }
    }
    let name = format!("generated: {GRAPHS} random, {proved} proved");
    let mut row = vec![name, ops.to_string(), String::new()];
    row.extend(sums.iter().map(|sum| format!("{:.4}", sum / GRAPHS as f64)));
    row.push(format!("{:.3}", seconds / GRAPHS as f64));
    Ok(row)
}

/// Random graphs of one size.
const GRAPHS: usize = 50;

/// Ops that read one to three of the last twelve values and make one; a third may work in place.
fn random(ops: usize, seed: usize) -> Result<Graph> {
    let mut b = Draft::new("random");
    b.random ^= seed << 20;
    let mut values = vec![b.value(8, Role::Input)?];
    for _ in 0..ops {
        let mut reads = Vec::new();
        for _ in 0..=b.below(3) {
            let back = b.below(values.len().min(12));
            reads.push(values[values.len() - 1 - back]);
        }
        if b.below(3) == 0 {
            let like = reads[0];
            let output = b.like(&reads, like)?;
            values.push(output);
        } else {
            let size = 1 << b.below(8);
            values.push(b.op(&reads, size)?);
        }
    }
    Ok(b.builder.finish()?)
}

/// Forward, backward and update of a chain of layers; the updates stand at the end, as exporters list them.
fn training(ops: usize) -> Result<Graph> {
    let mut b = Draft::new("training");
    let mut input = b.value(4096, Role::Input)?;
    let mut saved = Vec::new();
    for _ in 0..ops / 6 {
        let size = b.below(8000);
        let weight = b.below(4000);
        let weight = b.value(weight, Role::Parameter)?;
        let hidden = b.op(&[input, weight], size)?;
        saved.push((input, weight, hidden));
        input = b.op(&[hidden], size)?;
    }
    let mut gradient = b.op(&[input], 64)?;
    let mut updates = Vec::new();
    for &(input, weight, hidden) in saved.iter().rev() {
        let inner = b.like(&[gradient, hidden], hidden)?;
        updates.push((weight, b.like(&[inner, input], weight)?));
        gradient = b.like(&[inner, weight], input)?;
    }
    updates.into_iter().try_for_each(|(weight, gradient)| b.update(weight, gradient))?;
    Ok(b.builder.finish()?)
}

/// All gradients first, then all updates: half of the ops are ready at the same time.
fn wide(ops: usize) -> Result<Graph> {
    let mut b = Draft::new("wide");
    let loss = b.value(64, Role::Input)?;
    let mut updates = Vec::new();
    for _ in 0..ops / 2 {
        let size = b.below(8000);
        let weight = b.value(size, Role::Parameter)?;
        updates.push((weight, b.like(&[loss, weight], weight)?));
    }
    updates.into_iter().try_for_each(|(weight, gradient)| b.update(weight, gradient))?;
    Ok(b.builder.finish()?)
}

/// A random tree.
fn tree(ops: usize) -> Result<Graph> {
    let mut b = Draft::new("tree");
    let mut roots: Vec<ValueId> = Vec::new();
    for at in 0..ops {
        let most = if at + 1 == ops { roots.len() } else { b.below(4).min(roots.len()) };
        let mut reads = Vec::new();
        for _ in 0..most {
            let pick = b.below(roots.len());
            reads.push(roots.swap_remove(pick));
        }
        let size = 8 * b.below(100);
        roots.push(b.op(&reads, size)?);
    }
    Ok(b.builder.finish()?)
}

/// A graph in the making, with xorshift64 numbers.
struct Draft {
    builder: GraphBuilder,
    random: usize,
}

impl Draft {
    fn new(name: &str) -> Draft {
        Draft { builder: GraphBuilder::new(name), random: 88_172_645_463_325_252 }
    }

    /// Uniform below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit.max(1)
    }

    fn value(&mut self, size: usize, role: Role) -> Result<ValueId> {
        let size = Bytes(512 * (1 + size as u64));
        Ok(self.builder.value(ValueSpec { size, role, ..ValueSpec::default() })?)
    }

    fn op(&mut self, reads: &[ValueId], size: usize) -> Result<ValueId> {
        let output = self.value(size, Role::Activation)?;
        let reads = reads.to_vec();
        self.builder.op(OpSpec { reads, writes: vec![output], ..OpSpec::default() })?;
        Ok(output)
    }

    /// An op whose output is as large as `like`, and may take its bytes if the op reads it.
    fn like(&mut self, reads: &[ValueId], like: ValueId) -> Result<ValueId> {
        let size = self.builder.size_of(like).unwrap_or_default();
        let output = self.builder.value(ValueSpec { size, ..ValueSpec::default() })?;
        let pair = Reuse { input: like, output, must: false };
        let reuses = if reads.contains(&like) { vec![pair] } else { Vec::new() };
        let reads = reads.to_vec();
        self.builder.op(OpSpec { reads, writes: vec![output], reuses, ..OpSpec::default() })?;
        Ok(output)
    }

    /// Changes `weight` in place.
    fn update(&mut self, weight: ValueId, gradient: ValueId) -> Result<()> {
        let size = self.builder.size_of(weight).unwrap_or_default();
        let output = self.builder.value(ValueSpec { size, role: Role::Parameter, ..ValueSpec::default() })?;
        let reuses = vec![Reuse { input: weight, output, must: true }];
        let reads = vec![weight, gradient];
        self.builder.op(OpSpec { reads, writes: vec![output], reuses, ..OpSpec::default() })?;
        Ok(())
    }
}
