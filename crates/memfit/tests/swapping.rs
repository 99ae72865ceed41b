//! Published figures of swapping systems on captured networks: docs/swapping.md has them in a table.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit::ir::{InPlace, OpId};
use memfit::{Budget, Bytes, Device, Goal, Graph, Options, Tools, input, plan};
use memfit_plan::Context;
use memfit_plan::schedule::{Scheduler, Task, offload};

fn file(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn graph(path: &str) -> Graph {
    input::graph(&file(path), &input::Options::default()).unwrap()
}

fn goal(device: &Device, budget: Budget, strategies: &[&str]) -> Goal {
    let strategies = strategies.iter().map(|&name| name.to_owned()).collect();
    let options = Options { strategies, in_place: false, ..Options::default() };
    Goal { options, ..Goal::new(device.clone(), budget) }
}

/// AutoSwap (arXiv:1903.06631), CIFAR-10, batch 100: networks, and the published part of the load in a hundred that it takes off
/// for nothing.
const NETS: [(&str, f64); 8] = [
    ("resnet18", 20.7),
    ("resnet34", 24.8),
    ("resnet50", 34.2),
    ("resnet101", 32.4),
    ("vgg11", 27.0),
    ("vgg13", 29.3),
    ("vgg16", 30.9),
    ("vgg19", 28.5),
];

#[test]
fn autoswap_takes_the_published_share_off_for_nothing_and_smartpool_wastes_no_more() {
    let device =
        input::device_file(std::str::from_utf8(&file("bench/autoswap/1080ti.toml")).unwrap()).unwrap();
    for (name, share) in NETS {
        let graph = graph(&format!("corpus/cifar/{name}-cifar-b100.json.zst"));
        let all = goal(&device, Budget::Bytes(Bytes::MAX), &["order:given", "place:smartpool"]);
        let kept = plan(&graph, &all, &Tools::none()).unwrap().summary;
        let ratio = kept.peak.ratio(kept.live_peak);
        assert!(ratio <= 1.016, "{name}: {ratio}");
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the load")]
        let budget = Bytes((kept.live_peak.0 as f64 * (1.0 - share / 100.0)) as u64);
        let cut = goal(&device, Budget::Bytes(budget), &["order:given", "offload:autoswap", "budget:live"]);
        let moved = plan(&graph, &cut, &Tools::none()).unwrap().summary;
        println!("{name}: load {}, smartpool {ratio:.4}, within {budget}: {}", kept.live_peak, moved.time);
        assert_eq!(moved.time, moved.base_time, "{name}");
        assert!(moved.live_peak <= budget && moved.offloaded > Bytes::ZERO, "{name}");
    }
}

/// Without its wait vDNN is never slower, and fits where vDNN does, on graphs of real networks.
#[test]
fn vdnn_is_not_faster_than_without_its_wait() {
    let device = input::device("A100-80").unwrap();
    let context = Context::new(&device);
    let (mut compared, mut faster) = (0, 0);
    for name in ["vgg16-train-b256", "resnet50-train-b32", "unet-train-b16", "bert-base-train-b16-s512"] {
        let graph = graph(&format!("corpus/graphs/{name}.json.zst"));
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, false, &context);
        let (floor, peak) = (task.floor().0, task.reference());
        for part in [20, 50, 80] {
            let budget = Bytes(floor.0 + (peak.0 - floor.0) * part / 100);
            let time = |one: &dyn Scheduler| one.plan(&task, budget, &context).ok()?.time();
            let plus = time(&offload::Vdnn::PLUS_PLUS);
            for waits in [offload::Vdnn::ALL, offload::Vdnn::CONV] {
                let Some(waits) = time(&waits) else { continue };
                let plus = plus.unwrap_or_else(|| panic!("{name}, {part} %"));
                assert!(plus <= waits, "{name}, {part} %: {plus} against {waits}");
                compared += 1;
                faster += usize::from(plus < waits);
            }
        }
    }
    assert!(compared >= 8 && faster > 2, "{compared}, {faster}");
}
