//! What holds for every placer.

use memfit_ir::Bytes;
use memfit_plan::Context;
use memfit_plan::place::{PLACERS, Placer, Problem, Unplaced};
use memfit_testkit::cases;

use crate::support::{
    Random, bank, brute_force, check, cut, device, from_csv, item, pinned, problem, random, synth, tight,
};

fn lays_out(placer: &dyn Placer, problem: &Problem, what: &str) -> Option<Bytes> {
    let device = device();
    let name = placer.info().name;
    match placer.place(problem, &Context::new(&device)) {
        Ok(placement) => {
            if let Err(wrong) = check(problem, &placement) {
                panic!("{name} on {what}: {wrong}\n{problem:?}");
            }
            Some(placement.height)
        }
        Err(Unplaced::Unsupported(_)) => None,
        Err(error) => panic!("{name} on {what}: {error:?}"),
    }
}

#[test]
fn names_are_different() {
    let names: std::collections::BTreeSet<&str> = PLACERS.iter().map(|placer| placer.info().name).collect();
    assert_eq!(names.len(), PLACERS.len());
}

#[test]
fn every_placer_on_random_problems() {
    for seed in 1..cases(300) {
        let mut rng = Random::new(seed);
        // Many small ones, where searches end soon, and some that they do not solve.
        let count = if seed % 20 == 0 { rng.below(40) } else { rng.below(14) };
        let align = [1, 1, 4, 512][usize::try_from(seed % 4).unwrap()];
        let problem = random(&mut rng, count, align);
        let heights: Vec<Bytes> = PLACERS
            .iter()
            .map(|placer| lays_out(*placer, &problem, &format!("seed {seed}")).expect("one bank, no pins"))
            .collect();
        let best = heights.last().copied().unwrap();
        assert!(heights.iter().all(|&height| best <= height), "seed {seed}: {heights:?}");
        assert!(best >= problem.lower_bound() && best <= problem.total(), "seed {seed}");
    }
}

#[test]
fn every_placer_on_larger_problems() {
    for (what, problem) in
        [("synth", synth(2000, 42)), ("cut", cut(400, 7, 0)), ("cut with drops", cut(400, 8, 10))]
    {
        for placer in PLACERS {
            lays_out(*placer, &problem, what);
        }
    }
}

#[test]
fn pins_are_kept() {
    for seed in 1..400 {
        let mut rng = Random::new(seed);
        let count = rng.below(25);
        let mut problem = random(&mut rng, count, 4);
        // Pins that do not contradict each other: stretches of their own, with gaps.
        let mut top = 0;
        for item in &mut problem.items {
            if rng.below(4) == 0 {
                item.pin = pinned(0, Some(top));
                top += (item.size.0 + rng.below(30)).next_multiple_of(4);
            } else if rng.below(4) == 0 {
                item.pin = pinned(0, None);
            }
        }
        for placer in PLACERS {
            lays_out(*placer, &problem, &format!("pins {seed}"));
        }
    }
    let clash = Problem::new(
        [0, 4]
            .map(|offset| memfit_plan::place::Item { pin: pinned(0, Some(offset)), ..item(0, 2, 8) })
            .into(),
        vec![bank(100, 1)],
    );
    for placer in PLACERS {
        let device = device();
        assert!(placer.place(&clash, &Context::new(&device)).is_err(), "{}", placer.info().name);
    }
}

#[test]
fn banks_are_filled_to_their_capacity() {
    let mut placed = 0;
    for seed in 1..400 {
        let mut rng = Random::new(seed);
        let count = 1 + rng.below(25);
        let mut problem = random(&mut rng, count, 1);
        let half = problem.lower_bound().0.max(2) / 2;
        problem.banks = vec![bank(half, 1), bank(half * 3, 8), bank(1 << 20, 4)];
        for item in &mut problem.items {
            if rng.below(6) == 0 {
                item.pin = pinned(1 + u16::try_from(rng.below(2)).unwrap(), None);
            }
        }
        for placer in PLACERS {
            let device = device();
            match placer.place(&problem, &Context::new(&device)) {
                Ok(placement) => {
                    if let Err(wrong) = check(&problem, &placement) {
                        panic!("{} on seed {seed}: {wrong}", placer.info().name);
                    }
                    placed += 1;
                }
                Err(Unplaced::Unsupported(_) | Unplaced::TooSmall { .. }) => {}
            }
        }
    }
    assert!(placed > 500, "{placed}");
}

#[test]
fn empty_and_huge_items_do_not_wrap() {
    let huge = 1u64 << 61;
    let problems = [
        problem(vec![], 1),
        problem(vec![item(0, 0, 5), item(3, 3, 0), item(7, 2, 9), item(0, u32::MAX, 0)], 512),
        problem((0..4).map(|i| item(i, i + 1, huge)).collect(), 512),
        problem(vec![item(0, 3, huge - 1), item(1, 4, huge + 1), item(2, u32::MAX, 1)], 256),
        problem((0..12).map(|_| item(0, 2, huge)).collect(), 1),
        problem((0..3).map(|i| item(i, i + 2, u64::MAX)).collect(), 512),
        // As many as blocks are made of.
        problem((0..60).map(|i| item(i / 2, i / 2 + 2, huge)).collect(), 1),
        problem((0..60).map(|i| item(i, i + 2, u64::MAX)).collect(), 512),
    ];
    for (index, problem) in problems.iter().enumerate() {
        for placer in PLACERS {
            let device = device();
            match placer.place(problem, &Context::new(&device)) {
                Ok(placement) => check(problem, &placement).unwrap(),
                Err(_) => assert!(index >= 4, "{} on {index}", placer.info().name),
            }
        }
    }
}

#[test]
fn exact_and_best_equal_brute_force() {
    let device = device();
    for seed in 1..cases(1000) {
        let mut rng = Random::new(seed);
        let count = rng.below(9);
        let problem = random(&mut rng, count, [1, 4][usize::try_from(seed % 2).unwrap()]);
        let least = brute_force(&problem);
        for placer in PLACERS.iter().filter(|placer| ["exact", "best"].contains(&placer.info().name)) {
            let placement = placer.place(&problem, &Context::new(&device)).unwrap();
            check(&problem, &placement).unwrap();
            let name = placer.info().name;
            assert_eq!(placement.height.0, least, "{name} on seed {seed}");
            assert_eq!(placement.bound.0, least, "{name} proves it, seed {seed}");
        }
        for placer in PLACERS {
            let placement = placer.place(&problem, &Context::new(&device)).unwrap();
            assert!(placement.height.0 >= least && placement.bound.0 <= least, "{}", placer.info().name);
        }
    }
}

#[test]
fn the_result_is_the_same_on_any_number_of_threads() {
    let device = device();
    let on = |threads: usize, problem: &Problem, placer: &dyn Placer| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| placer.place(problem, &Context::new(&device)).unwrap())
    };
    for problem in [cut(120, 5, 10), cut(60, 2, 0), synth(500, 3)] {
        for placer in PLACERS {
            let one = on(1, &problem, *placer);
            assert_eq!(one, on(4, &problem, *placer), "{}", placer.info().name);
            assert_eq!(one, on(3, &problem, *placer), "{}", placer.info().name);
        }
    }
}

#[test]
fn a_stopped_search_returns_its_best() {
    let device = device();
    let problem = cut(300, 7, 10);
    let stop = || true;
    let context = Context { stop: &stop, effort: u32::MAX, ..Context::new(&device) };
    for placer in PLACERS {
        let placement = placer.place(&problem, &context).unwrap();
        check(&problem, &placement).unwrap();
    }
    // Under a limit, as much as the time allows.
    let calls = std::sync::atomic::AtomicU32::new(0);
    let stop = || calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 2000;
    let context = Context { stop: &stop, effort: u32::MAX, ..Context::new(&device) };
    let placement = PLACERS.last().unwrap().place(&problem, &context).unwrap();
    check(&problem, &placement).unwrap();
}

#[test]
fn a_height_that_is_enough_ends_the_search() {
    let device = device();
    let problem = cut(300, 7, 10);
    let enough = Bytes((1 << 36) * 12 / 10);
    let context = Context { enough, effort: u32::MAX, ..Context::new(&device) };
    let placement = PLACERS.last().unwrap().place(&problem, &context).unwrap();
    check(&problem, &placement).unwrap();
    assert!(placement.height <= enough);
}

/// Hundreds of buffers and sections without a byte to spare: only few ways lead there.
#[test]
fn tight_problems_are_placed_at_their_bound() {
    let device = device();
    for (seed, n, drop) in [(1, 350, 2), (2, 400, 3), (3, 400, 5), (4, 450, 8), (5, 350, 10), (6, 500, 4)] {
        let (problem, bound) = tight(n, seed, drop);
        assert_eq!(problem.lower_bound(), bound);
        let context = Context { enough: bound, effort: 4, ..Context::new(&device) };
        let placement = PLACERS.last().unwrap().place(&problem, &context).unwrap();
        check(&problem, &placement).unwrap();
        assert_eq!(placement.height, bound, "seed {seed}");
    }
}

/// Needs `shared/data/placement` beside the repository.
#[test]
fn the_published_instances_are_solved() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/placement");
    if !folder.is_dir() {
        eprintln!("SKIPPED: {} is absent", folder.display());
        return;
    }
    let device = device();
    let capacity = Bytes(1 << 20);
    for (name, enough) in [
        ("B.1048576", capacity),
        ("C.1048576", Bytes::ZERO),
        ("D.1048576", Bytes::ZERO),
        ("F.1048576", capacity),
        ("input.12", Bytes(12)),
        ("G_1", Bytes::ZERO),
        ("resnet50", Bytes::ZERO),
    ] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.csv"))).unwrap();
        let problem = from_csv(&text);
        let context = Context { enough, ..Context::new(&device) };
        let placement = PLACERS.last().unwrap().place(&problem, &context).unwrap();
        check(&problem, &placement).unwrap();
        assert!(placement.height <= enough.max(problem.lower_bound()), "{name}");
    }
}
