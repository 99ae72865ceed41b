//! Figures that papers on swapping publish and that follow from shapes: docs/swapping.md has them in a table.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_ir::{Bytes, Device, Graph, InPlace, Link, Nanos, OpId, Program};
use memfit_plan::Context;
use memfit_plan::liveness::Profile;
use memfit_plan::schedule::{Point, Scheduler, Task, offload};
use memfit_sim::simulate;
use memfit_testkit::{alexnet, device, vgg19};

/// PCIe 3.0 as vDNN and SuperNeurons have it.
fn machine(rate: f64) -> Device {
    let link = Link {
        out_bandwidth: rate,
        in_bandwidth: rate,
        duplex_cap: f64::INFINITY,
        latency: Nanos(10_000),
        asynchronous: true,
    };
    Device { link: Some(link), host_memory: Bytes(64 << 30), align: Bytes(1), ..device() }
}

fn planned(strategy: &dyn Scheduler, graph: &Graph, device: &Device, budget: Bytes) -> Option<Point> {
    let context = Context::new(device);
    let order: Vec<OpId> = graph.op_ids().collect();
    let task = Task::new(graph, &order, InPlace::Must, false, &context);
    strategy.plan(&task, budget, &context).ok()?.points.into_iter().next()
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / f64::from(1 << 20)
}

/// SuperNeurons (PPoPP 2018), AlexNet, batch 200: 1489.355 MiB by liveness, 1132.155 with outputs of convolutions away.
#[test]
fn superneurons_memory_of_alexnet() {
    let graph = alexnet(200);
    let (peak, at) = Profile::of(&Program::eager(&graph), Bytes(1)).peak();
    assert_eq!(format!("{:.3}", mib(peak)), "1489.355");
    let program = Program::eager(&graph);
    let computes = program.steps[..=at].iter().filter(|step| matches!(step, memfit_ir::Step::Compute(_)));
    assert_eq!(graph.op(OpId::at(computes.count() - 1)).name, "pool_backward");
    let device = machine(8e9);
    let moved = planned(&offload::SuperNeurons, &graph, &device, peak).unwrap();
    println!("{:.3} MiB by liveness, {:.3} with offload", mib(peak), mib(moved.cost.peak));
    assert!((mib(moved.cost.peak) / 1132.155 - 1.0).abs() <= 1e-4, "{}", mib(moved.cost.peak));
    // What moves does not depend on the budget, so less does not fit.
    assert!(planned(&offload::SuperNeurons, &graph, &device, moved.cost.peak).is_some());
    assert!(planned(&offload::SuperNeurons, &graph, &device, Bytes(moved.cost.peak.0 - 1)).is_none());
}

/// vDNN (MICRO 2016): its VGG-16, of 16 convolutions, at batch 256 on 12 GB. Everything fits no other way than with all maps moved;
/// each policy is slower and moves more than the one before it: nothing, `conv`, `all`; without the wait it is never slower.
#[test]
fn vdnn_trains_vgg_in_twelve_gigabytes() {
    let graph = vgg19(256);
    let device = machine(12.8e9);
    let all_of = |values: &mut dyn Iterator<Item = Bytes>| values.sum::<Bytes>();
    let values = || graph.value_ids().map(|id| graph.value(id));
    let is_map = |v: &memfit_ir::Value<'_>| v.role == memfit_ir::Role::Activation && v.over.is_none();
    let maps = all_of(&mut values().filter(is_map).map(|v| v.size));
    let weights = all_of(&mut values().filter(|v| v.name.contains("weights")).map(|v| v.size));
    let gradient = values().filter(|v| v.role == memfit_ir::Role::Gradient).map(|v| v.size).max().unwrap();
    // Network-wide allocation: all maps, weights and their gradients, and two buffers for the gradients of maps.
    let network = maps + weights + gradient + gradient;
    println!(
        "network-wide {:.1} GB without workspace, maps {:.1} GB",
        network.0 as f64 / 1e9,
        maps.0 as f64 / 1e9
    );
    let (plenty, twelve) = (Bytes(64 << 30), Bytes(12 << 30));
    let row = |strategy: &dyn Scheduler, budget| {
        let Point { cost, moved, .. } = planned(strategy, &graph, &device, budget)?;
        let timeline = simulate(&graph, &moved.unwrap(), None, &device);
        println!(
            "{}: {} at most, {}, {} moved",
            strategy.info().name,
            cost.peak,
            cost.time,
            timeline.offloaded
        );
        Some((cost.time, timeline.offloaded, cost.peak))
    };
    let [all, conv, dynamic, plus] =
        [offload::Vdnn::ALL, offload::Vdnn::CONV, offload::Vdnn::DYN, offload::Vdnn::PLUS_PLUS]
            .map(|strategy| row(&strategy, plenty).unwrap());
    assert!(dynamic.0 <= conv.0 && conv.0 <= all.0 && dynamic.1 <= conv.1 && conv.1 <= all.1);
    assert!(conv.0 < all.0 && conv.1 < all.1 && all.2 <= conv.2 && conv.2 < network);
    assert!(plus.0 <= conv.0.min(all.0));
    // The paper: 28 GB with its workspaces, and up to 16 GB moved.
    assert!(
        network > Bytes(24_000_000_000) && all.1 > Bytes(15_000_000_000) && all.1 < Bytes(17_500_000_000)
    );
    let fits = row(&offload::Vdnn::ALL, twelve).unwrap();
    assert!(fits.2 <= twelve);
    assert!(row(&offload::Vdnn::DYN, twelve).unwrap().2 <= twelve);
}
