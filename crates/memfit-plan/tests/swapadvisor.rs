//! SwapAdvisor on an unrolled LSTM whose activations are many times the device's memory, and its parts alone.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_ir::{
    Bytes, Device, Dtype, Graph, GraphBuilder, InPlace, Link, Nanos, OpSpec, Phase, Reuse, Role, ValueId,
    ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::order::by_name;
use memfit_plan::schedule::offload::{Lru, SwapAdvisor};
use memfit_plan::schedule::{Scheduler, Task};

const LAYERS: usize = 8;
const STEPS: usize = 96;
const BATCH: u64 = 256;
const HIDDEN: u64 = 2048;

/// A V100 with the link that SwapAdvisor measured: 12 GB/s each way, 20 GB/s both.
fn v100() -> Device {
    let link = Link {
        out_bandwidth: 12e9,
        in_bandwidth: 12e9,
        duplex_cap: 20e9,
        latency: Nanos(10_000),
        asynchronous: true,
    };
    Device {
        flops: vec![(Dtype::F32, 15.7e12)],
        bandwidth: 900e9,
        efficiency: (0.6, 0.8),
        launch: Nanos(5_000),
        link: Some(link),
        host_memory: Bytes(128 << 30),
        ..memfit_testkit::device()
    }
}

struct Lstm {
    b: GraphBuilder,
    state: Bytes,
    weights: Bytes,
}

impl Lstm {
    fn value(&mut self, size: Bytes, role: Role) -> ValueId {
        self.b.value(ValueSpec { size, role, ..ValueSpec::default() }).unwrap()
    }

    fn state(&mut self) -> ValueId {
        self.value(self.state, Role::Activation)
    }

    fn gates(&mut self) -> ValueId {
        self.value(Bytes(4 * self.state.0), Role::Activation)
    }

    /// An op that multiplies so many times, and else reads and writes what it does.
    fn op(
        &mut self,
        phase: Phase,
        products: u64,
        reads: &[ValueId],
        writes: &[ValueId],
        must: Option<Reuse>,
    ) {
        let bytes = |value: &ValueId| self.b.size_of(*value).unwrap().0;
        let moved = Bytes(reads.iter().chain(writes).map(bytes).sum());
        let flops = (products * 2 * BATCH * 4 * HIDDEN * HIDDEN) as f64;
        let (reads, writes, reuses) = (reads.to_vec(), writes.to_vec(), must.into_iter().collect());
        let spec =
            OpSpec { phase, flops, moved, dtype: Dtype::F32, reads, writes, reuses, ..OpSpec::default() };
        self.b.op(spec).unwrap();
    }
}

/// Cells of an LSTM forward, and backward over what they kept; gradients of weights are summed up in place.
fn lstm() -> Graph {
    let (state, weights) = (Bytes(BATCH * HIDDEN * 4), Bytes(8 * HIDDEN * HIDDEN * 4));
    let mut g = Lstm { b: GraphBuilder::new("lstm"), state, weights };
    let w: Vec<ValueId> = (0..LAYERS).map(|_| g.value(g.weights, Role::Parameter)).collect();
    let inputs: Vec<ValueId> = (0..STEPS).map(|_| g.value(state, Role::Input)).collect();
    let mut cells: Vec<Vec<[ValueId; 3]>> = vec![Vec::new(); STEPS];
    for step in 0..STEPS {
        for layer in 0..LAYERS {
            let below = if layer == 0 { inputs[step] } else { cells[step][layer - 1][2] };
            let before = step.checked_sub(1).map(|step| cells[step][layer]);
            let [gates, c, h] = [g.gates(), g.state(), g.state()];
            let reads: Vec<ValueId> =
                [w[layer], below].into_iter().chain(before.map(|cell| cell[2])).collect();
            g.op(Phase::Forward, 2, &reads, &[gates], None);
            let reads: Vec<ValueId> = [gates].into_iter().chain(before.map(|cell| cell[1])).collect();
            g.op(Phase::Forward, 0, &reads, &[c, h], None);
            cells[step].push([gates, c, h]);
        }
    }
    let mut sums: Vec<Option<ValueId>> = vec![None; LAYERS];
    // By layer: gradients of the state that come from the step after.
    let mut later: Vec<Option<[ValueId; 2]>> = vec![None; LAYERS];
    for step in (0..STEPS).rev() {
        let mut above = g.state();
        g.op(Phase::Backward, 0, &[cells[step][LAYERS - 1][2]], &[above], None);
        for layer in (0..LAYERS).rev() {
            let [gates, c, _] = cells[step][layer];
            let below = if layer == 0 { inputs[step] } else { cells[step][layer - 1][2] };
            let before = step.checked_sub(1).map(|step| cells[step][layer]);
            let [d_gates, d_c, d_h, d_x] = [g.gates(), g.state(), g.state(), g.state()];
            let reads = [gates, c, above].into_iter().chain(before.map(|cell| cell[1]));
            let reads: Vec<ValueId> = reads.chain(later[layer].into_iter().flatten()).collect();
            g.op(Phase::Backward, 0, &reads, &[d_gates, d_c], None);
            g.op(Phase::Backward, 2, &[d_gates, w[layer]], &[d_x, d_h], None);
            let sum = g.value(weights, Role::Gradient);
            let reads = [d_gates, below].into_iter().chain(before.map(|cell| cell[2]));
            let reads: Vec<ValueId> = reads.chain(sums[layer]).collect();
            let must = sums[layer].map(|input| Reuse { input, output: sum, must: true });
            g.op(Phase::Backward, 2, &reads, &[sum], must);
            sums[layer] = Some(sum);
            later[layer] = Some([d_c, d_h]);
            above = d_x;
        }
    }
    for layer in 0..LAYERS {
        let after = g.value(weights, Role::Parameter);
        let must = Some(Reuse { input: w[layer], output: after, must: true });
        g.op(Phase::Update, 0, &[w[layer], sums[layer].unwrap()], &[after], must);
        g.b.result(after).unwrap();
    }
    g.b.finish().unwrap()
}

/// At a sixth of the memory that it would take: SwapAdvisor reports 53 to 99 % of the ideal speed, far less on demand, and less
/// without either of its searches.
#[test]
fn each_of_both_searches_pays_on_an_unrolled_lstm() {
    let (graph, device) = (lstm(), v100());
    let context = Context::new(&device);
    let order = by_name("bfs").unwrap().order(&graph, &context);
    let task = Task::new(&graph, &order, InPlace::May, false, &context);
    let (floor, peak) = (task.floor().0.0, task.reference().0);
    let budget = Bytes(floor + (peak - floor) / 20);
    assert!(budget.0 * 6 < peak, "{budget} of {peak}");
    let speed = |one: &dyn Scheduler| {
        let front = one.plan(&task, budget, &context).unwrap();
        task.base_time().0 as f64 / front.time().unwrap().0 as f64
    };
    let demand = speed(&Lru);
    let [neither, allocation, orders, both] = [(false, false), (false, true), (true, false), (true, true)]
        .map(|(orders, allocation)| speed(&SwapAdvisor { orders, allocation }));
    println!(
        "of the ideal: {both} by both, {allocation} without orders, {orders} without allocation, {neither} without either; {demand} on demand"
    );
    assert!(both > 0.53 && both > allocation.max(orders), "{both} against {allocation} and {orders}");
    assert!(
        allocation.min(orders) > neither && neither > demand,
        "{allocation}, {orders}, {neither}, {demand}"
    );
}
