//! Random graphs of every shape that the constraints and the accounting of bytes can meet.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a generator that fails is a failed test")]

use memfit_ir::{
    Bytes, Device, Dtype, Effect, Graph, GraphBuilder, Nanos, OpId, OpSpec, Reuse, Role, ValueId, ValueSpec,
};

/// Aligns to 8 bytes.
pub(crate) fn device() -> Device {
    Device {
        name: "test".into(),
        memory: Bytes(1 << 30),
        align: Bytes(8),
        flops: vec![(Dtype::F32, 1e12)],
        bandwidth: 1e12,
        efficiency: (1.0, 1.0),
        launch: Nanos(1000),
        copy: None,
        codecs: Vec::new(),
        link: None,
        host_memory: Bytes::ZERO,
        disk: None,
    }
}

/// xorshift64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Uniform below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Up to `ops` ops: multi-output, in-place (must and may), workspace, effects, persistent values, values that
/// nothing reads, values read twice, ops without operands.
pub(crate) fn random(seed: u64, ops: usize) -> Graph {
    let random = &mut Random::new(seed);
    let mut b = GraphBuilder::new(format!("random {seed}"));
    let sizes = [0, 1, 8, 8, 64, 64, 100, 512, 1000];
    // A small palette makes equal sizes, and so in-place pairs, frequent.
    let palette: Vec<u64> = (0..1 + random.below(5)).map(|_| sizes[random.below(sizes.len())]).collect();
    let reach = 1 + random.below(12); // How far back operands lie.
    let (many, effects, in_place) = (random.below(4), random.below(30), random.below(101));
    let mut usable: Vec<ValueId> = Vec::new();
    for _ in 0..random.below(5) {
        let role = [Role::Input, Role::Input, Role::Parameter, Role::State, Role::Constant][random.below(5)];
        let size = Bytes(palette[random.below(palette.len())]);
        usable.push(b.value(ValueSpec { size, role, ..ValueSpec::default() }).unwrap());
    }
    let mut mutable: Vec<ValueId> = Vec::new();
    for _ in 0..ops {
        let mut spec = OpSpec::default();
        for _ in 0..random.below(2 + many) {
            if !usable.is_empty() {
                let back = random.below(usable.len().min(reach));
                spec.reads.push(usable[usable.len() - 1 - back]);
            }
        }
        if random.chance(effects) {
            spec.effect = [Effect::Seeded, Effect::Once, Effect::Collective][random.below(3)];
        }
        if random.chance(20) {
            spec.workspace = Bytes(palette[random.below(palette.len())] * 2);
        }
        for _ in 0..1 + random.below(1 + many) - usize::from(random.chance(10)) {
            let pair = spec.reads.get(random.below(spec.reads.len().max(1))).copied();
            let pair = pair.filter(|_| random.chance(in_place));
            let size = pair.and_then(|input| b.size_of(input));
            let size = size.unwrap_or(Bytes(palette[random.below(palette.len())]));
            let output = b.value(ValueSpec { size, ..ValueSpec::default() }).unwrap();
            spec.writes.push(output);
            if let Some(input) = pair {
                let free = spec.reuses.iter().all(|other| !other.must || other.input != input);
                let must = free && random.chance(30);
                spec.reuses.push(Reuse { input, output, must });
            }
            for &input in &spec.reads {
                if b.size_of(input) == Some(size) && random.chance(in_place / 2) {
                    spec.reuses.push(Reuse { input, output, must: false });
                }
            }
        }
        let gone: Vec<ValueId> = spec.reuses.iter().filter(|pair| pair.must).map(|pair| pair.input).collect();
        let writes = spec.writes.clone();
        b.op(spec).unwrap();
        usable.retain(|value| !gone.contains(value));
        mutable.retain(|value| !gone.contains(value));
        usable.extend(&writes);
        mutable.extend(&writes);
    }
    for value in mutable {
        if random.chance(10) {
            b.result(value).unwrap();
        }
    }
    b.finish().unwrap()
}

/// A random order that the dependencies allow.
pub(crate) fn random_order(graph: &Graph, seed: u64) -> Vec<OpId> {
    let deps = memfit_plan::dependencies::Dependencies::of(graph);
    let random = &mut Random::new(seed);
    let mut waiting: Vec<usize> = graph.op_ids().map(|op| deps.preds(op).len()).collect();
    let mut ready: Vec<OpId> = graph.op_ids().filter(|op| waiting[op.index()] == 0).collect();
    let mut order = Vec::new();
    while !ready.is_empty() {
        let op = ready.swap_remove(random.below(ready.len()));
        order.push(op);
        for &next in deps.succs(op) {
            waiting[next.index()] -= 1;
            if waiting[next.index()] == 0 {
                ready.push(next);
            }
        }
    }
    order
}

/// Adds a value.
fn value(b: &mut GraphBuilder, size: usize, role: Role) -> ValueId {
    b.value(ValueSpec { size: Bytes(size as u64), role, ..ValueSpec::default() }).unwrap()
}

/// Adds an op that makes one value of `size` bytes.
fn make(b: &mut GraphBuilder, reads: &[ValueId], size: usize) -> ValueId {
    let output = value(b, size, Role::Activation);
    b.op(OpSpec { reads: reads.to_vec(), writes: vec![output], ..OpSpec::default() }).unwrap();
    output
}

/// A chain of ops, each reading the output of the one before.
pub(crate) fn chain(ops: usize) -> Graph {
    let mut b = GraphBuilder::new("chain");
    let mut last = value(&mut b, 64, Role::Input);
    for at in 0..ops {
        last = make(&mut b, &[last], 64 + 8 * (at % 7));
    }
    b.result(last).unwrap();
    b.finish().unwrap()
}

/// One op makes all gradients; then every update could come next. Half of the ops are updates in place.
pub(crate) fn wide(ops: usize) -> Graph {
    let mut b = GraphBuilder::new("wide");
    let random = &mut Random::new(7);
    let loss = value(&mut b, 64, Role::Input);
    let mut updates = Vec::new();
    for _ in 0..ops / 2 {
        let size = 8 * (1 + random.below(1000));
        let old = value(&mut b, size, Role::Parameter);
        let gradient = make(&mut b, &[loss, old], size);
        updates.push((old, gradient, size));
    }
    for (old, gradient, size) in updates {
        let new = value(&mut b, size, Role::Parameter);
        let reuses = vec![Reuse { input: old, output: new, must: true }];
        let reads = vec![old, gradient];
        b.op(OpSpec { reads, writes: vec![new], reuses, ..OpSpec::default() }).unwrap();
    }
    b.finish().unwrap()
}

/// Forward, backward and update of a chain of layers; the updates stand at the end, as exporters list them.
pub(crate) fn training(layers: usize) -> Graph {
    let mut b = GraphBuilder::new("training");
    let random = &mut Random::new(11);
    let mut at = value(&mut b, 4096, Role::Input);
    let mut saved = Vec::new();
    for layer in 0..layers {
        let weight = value(&mut b, 8 * (1 + random.below(4000)), Role::Parameter);
        let size = 8 * (1 + random.below(8000));
        let hidden = make(&mut b, &[at, weight], size);
        let output = make(&mut b, &[hidden], size);
        saved.push((at, weight, hidden));
        at = match saved.get(layer.wrapping_sub(2)) {
            Some(&(skipped, ..)) if layer % 3 == 0 => make(&mut b, &[output, skipped], size),
            _ => output,
        };
    }
    let mut gradient = make(&mut b, &[at], 64);
    let sizes: Vec<usize> = (0..=gradient.index())
        .map(|at| usize::try_from(b.size_of(ValueId::at(at)).unwrap().0).unwrap())
        .collect();
    let size_of = |value: ValueId| sizes[value.index()];
    let mut updates = Vec::new();
    for &(input, weight, hidden) in saved.iter().rev() {
        let inner = make(&mut b, &[gradient, hidden], size_of(hidden));
        let of_weight = make(&mut b, &[inner, input], size_of(weight));
        gradient = make(&mut b, &[inner, weight], size_of(input));
        updates.push((weight, of_weight));
    }
    for (old, gradient) in updates {
        let size = size_of(old);
        let new = value(&mut b, size, Role::Parameter);
        let reuses = vec![Reuse { input: old, output: new, must: true }];
        let reads = vec![old, gradient];
        b.op(OpSpec { reads, writes: vec![new], reuses, ..OpSpec::default() }).unwrap();
    }
    b.finish().unwrap()
}

/// A random tree: every op but the last is read by one later op. `bushy` trees have short paths.
pub(crate) fn tree(ops: usize, seed: u64, bushy: bool) -> Graph {
    let mut b = GraphBuilder::new("tree");
    let random = &mut Random::new(seed);
    let mut roots: Vec<ValueId> = Vec::new();
    for at in 0..ops {
        let last = at + 1 == ops;
        let most = if last { usize::MAX } else { random.below(4).min(roots.len()) };
        let mut reads = Vec::new();
        while reads.len() < most && !roots.is_empty() {
            let pick = if bushy { random.below(roots.len()) } else { roots.len() - 1 };
            reads.push(roots.swap_remove(pick));
        }
        let workspace = Bytes(8 * random.below(40) as u64);
        let output = value(&mut b, 8 * (1 + random.below(20)), Role::Activation);
        b.op(OpSpec { reads, writes: vec![output], workspace, ..OpSpec::default() }).unwrap();
        roots.push(output);
    }
    roots.iter().for_each(|&root| b.result(root).unwrap());
    b.finish().unwrap()
}

/// A random series-parallel graph in which every value is read by one op.
pub(crate) fn series_parallel(ops: usize, seed: u64) -> Graph {
    let mut b = GraphBuilder::new("series-parallel");
    let random = &mut Random::new(seed);
    // Work on a stack of (ops left, input) fragments, each to become one value.
    fn fragment(b: &mut GraphBuilder, random: &mut Random, ops: usize, input: ValueId) -> ValueId {
        let size = 8 * (1 + random.below(30));
        if ops <= 1 {
            return make(b, &[input], size);
        }
        if ops < 4 || random.chance(40) {
            let first = 1 + random.below(ops - 1);
            let middle = fragment(b, random, first, input);
            return fragment(b, random, ops - first, middle);
        }
        let branches = 2 + random.below((ops - 2).min(3) - 1);
        let sizes: Vec<usize> = (0..branches).map(|_| 8 * (1 + random.below(30))).collect();
        let writes: Vec<ValueId> = sizes.iter().map(|&size| value(b, size, Role::Activation)).collect();
        b.op(OpSpec { reads: vec![input], writes: writes.clone(), ..OpSpec::default() }).unwrap();
        let each = (ops - 2) / branches;
        let ends: Vec<ValueId> =
            writes.iter().map(|&start| fragment(b, random, each.max(1), start)).collect();
        make(b, &ends, size)
    }
    let input = value(&mut b, 64, Role::Input);
    let end = fragment(&mut b, random, ops, input);
    b.result(end).unwrap();
    b.finish().unwrap()
}

/// Ops that have nothing to do with each other, half of them without any operand.
pub(crate) fn alone(ops: usize) -> Graph {
    let mut b = GraphBuilder::new("alone");
    let input = value(&mut b, 64, Role::Input);
    for at in 0..ops / 2 {
        make(&mut b, &[input], 8 * (1 + at % 9));
        b.op(OpSpec { workspace: Bytes(8 * (at as u64 % 5)), ..OpSpec::default() }).unwrap();
    }
    b.finish().unwrap()
}

/// No ops at all: a source that is kept, one that nothing reads.
pub(crate) fn sources_only() -> Graph {
    let mut b = GraphBuilder::new("sources");
    value(&mut b, 64, Role::Parameter);
    value(&mut b, 64, Role::Input);
    b.finish().unwrap()
}
