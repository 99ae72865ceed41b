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
        link: None,
        host_memory: Bytes::ZERO,
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
