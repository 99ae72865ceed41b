//! What holds for every placer.

use memfit_ir::Bytes;
use memfit_plan::Context;
use memfit_plan::place::{PLACERS, Placer, Problem, Unplaced};

use crate::support::{Random, bank, check, cut, device, item, pinned, problem, random, synth};

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
    for seed in 1..800 {
        let mut rng = Random::new(seed);
        let (count, align) = (rng.below(40), [1, 1, 4, 512][usize::try_from(seed % 4).unwrap()]);
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
