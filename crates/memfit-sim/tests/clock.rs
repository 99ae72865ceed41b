//! The clock against the judge, against the liveness profile, and by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memfit_ir::{
    Bytes, Codec, Content, Device, Dtype, Graph, GraphBuilder, Link, Nanos, OpId, OpSpec, Program, Role,
    Step, StepId, Store, Tier, ValueId, ValueSpec,
};
use memfit_sim::{Fault, simulate};
use memfit_testkit::case;
use memfit_verify::verify;

fn device(link: Option<Link>) -> Device {
    Device {
        name: "test".into(),
        memory: Bytes(1 << 30),
        align: Bytes(1),
        flops: vec![(Dtype::F32, 1e9)],
        bandwidth: 1e9,
        efficiency: (1.0, 1.0),
        launch: Nanos(5),
        copy: None,
        codecs: Vec::new(),
        link,
        host_memory: Bytes(1 << 30),
        disk: None,
    }
}

fn link(latency: u64, cap: f64) -> Link {
    Link {
        out_bandwidth: 1e9,
        in_bandwidth: 2e9,
        duplex_cap: cap,
        latency: Nanos(latency),
        asynchronous: true,
    }
}

/// Sources of the given sizes and an op of 1000 ns for each, which reads it.
fn readers(sizes: &[u64]) -> Graph {
    let mut b = GraphBuilder::new("readers");
    for &size in sizes {
        let spec = ValueSpec { size: Bytes(size), role: Role::Parameter, ..ValueSpec::default() };
        b.value(spec).unwrap();
    }
    for at in 0..sizes.len() {
        let reads = vec![ValueId::at(at)];
        b.op(OpSpec { reads, time: Some(Nanos(1000)), ..OpSpec::default() }).unwrap();
    }
    b.finish().unwrap()
}

#[test]
fn peaks_are_those_of_the_judge() {
    for seed in 0..3000 {
        let case = case(seed);
        let verified = verify(&case.graph, &case.limits, case.plan.clone()).unwrap();
        let device = device(Some(link(7, f64::INFINITY)));
        let timeline = simulate(&case.graph, &case.plan.program, Some(&case.plan.layout), &device);
        let (sim, judge) = (&timeline.peaks, verified.peaks());
        for bank in 0..judge.len().max(sim.len()) {
            let of = |peaks: &[Bytes]| peaks.get(bank).copied().unwrap_or_default();
            assert_eq!(of(sim), of(judge), "seed {seed}, bank {bank}");
        }
        assert_eq!(timeline.host_peak(), verified.tier_peak(Tier::Host), "seed {seed}");
        assert_eq!(timeline.stuck, 0, "seed {seed}");
        assert!(timeline.busy.lanes.iter().all(|&busy| busy <= timeline.time), "seed {seed}");
        assert!(timeline.steps.iter().all(|step| step.start <= step.end && step.end <= timeline.time));
        let again = simulate(&case.graph, &case.plan.program, Some(&case.plan.layout), &device);
        assert_eq!(again, timeline, "seed {seed}");
    }
}

#[test]
fn steps_keep_the_order_of_their_lane_and_of_awaits() {
    for seed in 0..1000 {
        let case = case(seed);
        let program = &case.plan.program;
        let timeline = simulate(&case.graph, program, None, &device(Some(link(3, 2e9))));
        let mut free = [Nanos::ZERO; 16];
        for (at, step) in program.steps.iter().enumerate() {
            let lane = usize::from(program.lane(at));
            let span = timeline.steps[at];
            if matches!(step, Step::Offload { .. } | Step::Fetch { .. }) {
                continue;
            }
            assert!(span.start >= free[lane], "seed {seed} step {at}");
            if let Step::Await(awaited) = step {
                assert!(span.end >= timeline.steps[awaited.index()].end, "seed {seed} step {at}");
            }
            free[lane] = span.end;
        }
    }
}

#[test]
fn one_lane_takes_the_sum_of_its_ops() {
    let graph = readers(&[1, 2, 3]);
    let timeline = simulate(&graph, &Program::eager(&graph), None, &device(None));
    assert_eq!((timeline.time, timeline.live_peak), (Nanos(3000), Bytes(6)));
    assert_eq!((timeline.recompute_time, timeline.recomputes), (Nanos::ZERO, 0));
    let mut program = Program::eager(&graph);
    let again = program.steps[1];
    program.steps.push(again);
    let timeline = simulate(&graph, &program, None, &device(None));
    assert_eq!((timeline.time, timeline.recompute_time), (Nanos(4000), Nanos(1000)));
}

#[test]
fn a_lane_waits_for_transfers_that_are_not_asynchronous() {
    let (mut waited, mut moved) = (0, 0);
    for seed in 0..1000 {
        let case = case(seed);
        let program = &case.plan.program;
        let link = Link { asynchronous: false, ..link(3, f64::INFINITY) };
        let timeline = simulate(&case.graph, program, None, &device(Some(link)));
        if program.lanes.iter().any(|&lane| lane > 0)
            || program.copies.iter().any(|copy| copy.tier != Tier::Host)
        {
            continue;
        }
        // One thing after the other.
        let busy = &timeline.busy;
        let sum = busy.lanes.iter().fold(busy.out + busy.into, |sum, &busy| sum + busy);
        assert_eq!((timeline.time, timeline.stuck), (sum, 0), "seed {seed}");
        moved += 1;
        waited += usize::from(timeline.time > busy.lanes[0]);
    }
    assert!(waited > 30 && moved > waited, "{waited} of {moved}");
    let graph = readers(&[1000, 1000]);
    let link = Link { asynchronous: false, ..link(50, f64::INFINITY) };
    // 1000 B out at 1 B/ns and 1000 B in at 2 B/ns.
    assert_eq!(simulate(&graph, &transfers(&graph, true), None, &device(Some(link))).time, Nanos(1600));
}

/// Offloads buffer 0 and, if `both`, fetches a parked copy at the same time; then waits for each.
fn transfers(graph: &Graph, both: bool) -> Program {
    let mut program = Program::default();
    let content = |at| Content::Value(ValueId(at));
    let size = |at| graph.value(ValueId(at)).size;
    let buffer = program.buffer(content(0), size(0), None);
    program.resident.push(buffer);
    let parked = program.copy(content(1), size(1), Tier::Host);
    program.parked.push(parked);
    let copy = program.copy(content(0), size(0), Tier::Host);
    program.steps.push(Step::Offload { from: buffer, to: copy });
    if both {
        let fetched = program.buffer(content(1), size(1), None);
        program.steps.push(Step::Fetch { from: parked, to: fetched });
        program.steps.push(Step::Await(StepId(1)));
    }
    program.steps.push(Step::Await(StepId(0)));
    program
}

#[test]
fn directions_share_the_cap_and_only_while_both_move_bytes() {
    let graph = readers(&[1000, 1000]);
    let time = |both: bool, latency: u64, cap: f64| {
        let timeline = simulate(&graph, &transfers(&graph, both), None, &device(Some(link(latency, cap))));
        timeline.time.0
    };
    assert_eq!(time(false, 50, 1.0e9), 1050);
    assert_eq!(time(true, 0, f64::INFINITY), 1000);
    // Together 3 B/ns of 1.5 wanted: half speed until the fetch is done at 1000, then 500 B at full speed.
    assert_eq!(time(true, 0, 1.5e9), 1500);
    assert_eq!(time(true, 100, 1.5e9), 1600);
}

#[test]
fn transfers_hide_behind_ops_and_queue_behind_each_other() {
    let graph = readers(&[600, 300, 10]);
    let mut program = Program::default();
    let mut buffers = Vec::new();
    for at in 0..3 {
        let value = ValueId(at);
        let buffer = program.buffer(Content::Value(value), graph.value(value).size, None);
        program.resident.push(buffer);
        buffers.push(buffer);
    }
    for at in [0, 1] {
        let copy =
            program.copy(Content::Value(ValueId::at(at)), graph.value(ValueId::at(at)).size, Tier::Host);
        program.steps.push(Step::Offload { from: buffers[at], to: copy });
    }
    let step = program.compute(OpId(2), 0, [buffers[2]], [], None);
    program.steps.push(step);
    program.steps.push(Step::Await(StepId(1)));
    let timeline = simulate(&graph, &program, None, &device(Some(link(0, f64::INFINITY))));
    assert_eq!(timeline.time, Nanos(1000));
    assert_eq!((timeline.steps[1].start, timeline.steps[1].end), (Nanos(600), Nanos(900)));
    assert_eq!((timeline.busy.out, timeline.offloaded), (Nanos(900), Bytes(900)));
    assert_eq!(timeline.host_peak(), Bytes(900));
}

#[test]
fn insane_costs_are_replaced_and_named() {
    let mut b = GraphBuilder::new("costs");
    for (name, time) in
        [("fine", Some(7)), ("nothing", Some(0)), ("for ever", Some(u64::MAX)), ("flops", None)]
    {
        b.op(OpSpec { name: name.into(), flops: 1.0, time: time.map(Nanos), ..OpSpec::default() }).unwrap();
    }
    let graph = b.finish().unwrap();
    let faults = |device: &Device| -> Vec<(u32, Fault)> {
        let timeline = simulate(&graph, &Program::eager(&graph), None, device);
        assert!(timeline.time < Nanos(1000));
        timeline.warnings.iter().map(|warning| (warning.op.0, warning.fault)).collect()
    };
    let common = vec![(1, Fault::Zero), (2, Fault::Infinite)];
    let mut sick = device(None);
    assert_eq!(faults(&sick), common);
    for (rate, fault) in [(0.0, Fault::Infinite), (-1.0, Fault::Negative), (f64::NAN, Fault::NotANumber)] {
        sick.flops = vec![(Dtype::F32, rate)];
        assert_eq!(faults(&sick), [common.clone(), vec![(3, fault)]].concat());
    }
    let timeline = simulate(&graph, &Program::eager(&graph), None, &sick);
    assert_eq!(timeline.warnings[0].message(&graph), "op1 `nothing`: its cost is zero; `1 ns` is used");
}

#[test]
fn what_waits_for_ever_is_counted_not_waited_for() {
    let graph = readers(&[1]);
    let mut program = Program::default();
    program.steps.push(Step::Await(StepId(0)));
    let timeline = simulate(&graph, &program, None, &device(None));
    assert_eq!((timeline.stuck, timeline.time), (1, Nanos::ZERO));
    assert_eq!(simulate(&graph, &Program::default(), None, &device(None)).stuck, 0);
}

/// Two stores at once: to one tier they queue, to two tiers each has its own link.
#[test]
fn tiers_have_links_of_their_own() {
    let mut b = GraphBuilder::new("two");
    for _ in 0..2 {
        let spec = ValueSpec { size: Bytes(1000), role: Role::Constant, ..ValueSpec::default() };
        b.value(spec).unwrap();
    }
    let graph = b.finish().unwrap();
    let mut device = device(Some(link(0, f64::INFINITY)));
    device.disk =
        Some(Store { capacity: Bytes(1 << 20), link: Link { out_bandwidth: 5e8, ..link(7, 1e12) } });
    let time = |tiers: [Tier; 2]| {
        let mut program = Program::default();
        for (at, tier) in tiers.into_iter().enumerate() {
            let content = Content::Value(ValueId::at(at));
            let from = program.buffer(content, Bytes(1000), None);
            program.resident.push(from);
            let to = program.copy(content, Bytes(1000), tier);
            program.steps.push(Step::Offload { from, to });
        }
        let timeline = simulate(&graph, &program, None, &device);
        (timeline.time, timeline.tier_peaks)
    };
    assert_eq!(time([Tier::Host, Tier::Host]), (Nanos(2000), [Bytes(2000), Bytes(0)]));
    assert_eq!(time([Tier::Host, Tier::Disk]), (Nanos(2007), [Bytes(1000), Bytes(1000)]));
    assert_eq!(time([Tier::Disk, Tier::Disk]), (Nanos(4014), [Bytes(0), Bytes(2000)]));
}

#[test]
fn codecs_and_copies_take_what_the_device_says() {
    let graph = readers(&[4000]);
    let mut program = Program::default();
    let plain = program.buffer(Content::Value(ValueId(0)), Bytes(4000), None);
    program.resident.push(plain);
    let packed =
        program.buffer(Content::Encoded(ValueId(0), Codec::Zvc), Codec::Zvc.bound(Bytes(4000)), None);
    program.steps.push(Step::Encode { from: plain, to: packed });
    program.steps.push(Step::Free(plain));
    let back = program.buffer(Content::Value(ValueId(0)), Bytes(4000), None);
    program.steps.push(Step::Decode { from: packed, to: back });
    let usual = device(None);
    // 4000 bytes and a bit for each word of 4, at 1 GB/s.
    let moved = Nanos(4000 + 4000 + 125);
    assert_eq!(usual.codec_times(Codec::Zvc, Bytes(4000)), (moved, moved));
    assert_eq!(simulate(&graph, &program, None, &usual).time, moved + moved);
    assert_eq!(usual.copy_time(Bytes(4000)), Nanos(8000));
    let own = Device { copy: Some(4e9), codecs: vec![(Codec::Zvc, 2e9, 8e9)], ..usual };
    assert_eq!(simulate(&graph, &program, None, &own).time, Nanos(2000 + 500));
    assert_eq!((own.copy_time(Bytes(4000)), own.copy_time(Bytes(4))), (Nanos(1000), Nanos(5)));
}
