//! Every order with every placer, on every generated graph, survives the judge and real bytes.

use std::sync::Arc;

use memfit_ir::{Bytes, InPlace, Limits, Plan, Program};
use memfit_plan::Context;
use memfit_plan::order::ORDERS;
use memfit_plan::place::{PLACERS, Problem};
use memfit_testkit::bytes::Truth;
use memfit_testkit::{Case, Verdict, device, graph, try_plan};

#[test]
fn every_strategy_survives_the_judge_and_real_bytes() {
    let device = device();
    let context = Context::new(&device);
    for seed in 0..40 {
        let graph = Arc::new(graph(seed));
        let truth = Truth::of(&graph);
        for order in ORDERS {
            let ops = order.order(&graph, &context);
            for (placer, in_place) in PLACERS.iter().flat_map(|p| [(p, InPlace::Must), (p, InPlace::May)]) {
                let align = Bytes([1, 16, 64][usize::try_from(seed % 3).unwrap()]);
                let program = Program::in_order(&graph, &ops, in_place);
                let (problem, item_of) = Problem::of(&graph, &program, &Limits::arena(Bytes::MAX, align));
                let name =
                    format!("{} × {}, {in_place:?}, seed {seed}", order.info().name, placer.info().name);
                let placement = placer.place(&problem, &context);
                let placement = placement.unwrap_or_else(|error| panic!("{name}: {error:?}"));
                let layout = Problem::layout(&placement.places, &item_of);
                let limits = Limits::arena(placement.height, align);
                let plan = Plan { graph: graph.digest(), program, layout };
                let case = Case { graph: Arc::clone(&graph), limits, plan };
                let (verdict, _) = try_plan(&truth, &case);
                assert_eq!(verdict, Verdict::AcceptedRight, "{name}\n{}", case.replay());
                assert!(placement.bound <= placement.height, "{name}");
            }
        }
    }
}
