//! Parallel lanes: the eight-node example of MXNet's note on memory, and random graphs.

use std::sync::atomic::{AtomicU32, Ordering};

use memfit_ir::{
    Bytes, Graph, GraphBuilder, InPlace, Limits, OpId, OpSpec, Place, Program, Role, ValueId, ValueSpec,
};
use memfit_plan::Context;
use memfit_plan::place::lanes::{Keep, added, colours, restrict, step_time};
use memfit_plan::place::{PLACERS, Problem, Unplaced};

use crate::support::{Random, check, device};

/// A[1] → A[2] → A[3] → A[4] and A[1] → A[5] → A[6] → A[7], which meet in A[8]; all of one size.
fn eight() -> Graph {
    graph(&[&[], &[0], &[1], &[2], &[0], &[4], &[5], &[3, 6]])
}

/// Op i writes value i and reads the given ones. The last value is the result.
fn graph(reads: &[&[u32]]) -> Graph {
    let mut graph = GraphBuilder::new("lanes");
    for at in 0..reads.len() {
        let role = if at + 1 == reads.len() { Role::Output } else { Role::Activation };
        graph.value(ValueSpec { size: Bytes(64), role, ..ValueSpec::default() }).unwrap();
    }
    for (at, reads) in (0u32..).zip(reads) {
        let reads = reads.iter().map(|&value| ValueId(value)).collect();
        let spec = OpSpec { reads, writes: vec![ValueId(at)], flops: 1e6, ..OpSpec::default() };
        graph.op(spec).unwrap();
    }
    graph.result(ValueId::at(reads.len() - 1)).unwrap();
    graph.finish().unwrap()
}

fn serial(graph: &Graph) -> (Program, Problem, Vec<usize>) {
    let order: Vec<OpId> = graph.op_ids().collect();
    let program = Program::in_order(graph, &order, InPlace::Must);
    let (problem, item_of) = Problem::of(graph, &program, &Limits::arena(Bytes::MAX, Bytes(1)));
    (program, problem, item_of)
}

#[test]
fn of_two_plans_of_one_size_one_lets_a2_and_a5_run_side_by_side() {
    let graph = eight();
    let (program, problem, item_of) = serial(&graph);
    let layout = |tags: [u64; 8]| -> Vec<Place> {
        tags.iter().map(|tag| Place { bank: 0, offset: Bytes(tag * 64) }).collect()
    };
    // Both take five blocks. In the first A[5] takes the block of A[2], in the second each path has its own.
    let left = layout([0, 1, 2, 3, 1, 2, 4, 0]);
    let right = layout([0, 1, 2, 1, 3, 4, 3, 0]);
    assert_eq!(problem.height(&left), problem.height(&right));
    let dependencies = |places| added(&problem, &graph, &program, &item_of, places);
    assert!(dependencies(&left).contains(&(OpId(1), OpId(4))), "A[5] must wait for A[2]");
    assert_eq!(dependencies(&right), []);
    let device = device();
    let time = |places| step_time(&graph, &program, &dependencies(places), 2, &device);
    assert!(time(&right) < time(&left));
}

#[test]
fn the_longest_paths_have_colours_of_their_own() {
    let graph = eight();
    let dependencies = memfit_plan::dependencies::Dependencies::of(&graph);
    assert_eq!(colours(&graph, &dependencies, 2), [1, 1, 1, 1, 2, 2, 2, 1]);
    assert_eq!(colours(&graph, &dependencies, 1), [1; 8]);
}

#[test]
fn no_placer_adds_a_dependency() {
    let device = device();
    let mut shared = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let ops = 3 + random.below32(30);
        let reads: Vec<Vec<u32>> = (0..ops)
            .map(|op| (0..random.below(3)).filter(|_| op > 0).map(|_| random.below32(op)).collect())
            .collect();
        let graph =
            if seed == 0 { eight() } else { graph(&reads.iter().map(Vec::as_slice).collect::<Vec<_>>()) };
        let (program, mut problem, item_of) = serial(&graph);
        let serial_bound = problem.lower_bound();
        restrict(&mut problem, &graph, &program, &item_of, Keep::Reachable);
        // Searches that cannot prove their bound would spend all their effort on each of these.
        let calls = AtomicU32::new(0);
        let stop = || calls.fetch_add(1, Ordering::Relaxed) > 300;
        let context = Context { stop: &stop, ..Context::new(&device) };
        for placer in PLACERS {
            calls.store(0, Ordering::Relaxed);
            match placer.place(&problem, &context) {
                Ok(placement) => {
                    check(&problem, &placement).unwrap();
                    let added = added(&problem, &graph, &program, &item_of, &placement.places);
                    assert_eq!(added, [], "{} on seed {seed}", placer.info().name);
                    assert!(placement.height >= serial_bound);
                    shared += u64::from(placement.height < problem.total());
                }
                Err(Unplaced::Unsupported(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        restrict(&mut problem, &graph, &program, &item_of, Keep::Colours(3));
        for placer in PLACERS {
            calls.store(0, Ordering::Relaxed);
            if let Ok(placement) = placer.place(&problem, &context) {
                let name = placer.info().name;
                // `refcount` looks at the colour of who gave the block back, not at all tenants.
                if name != "refcount" {
                    check(&problem, &placement)
                        .unwrap_or_else(|wrong| panic!("{name} on seed {seed}: {wrong}"));
                }
            }
        }
    }
    assert!(shared > 100, "{shared}");
}
