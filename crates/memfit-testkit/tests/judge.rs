//! Judges the judge: what it accepts must be right on real bytes, and every good plan must be accepted.

use memfit_testkit::bytes::{Truth, check};
use memfit_testkit::{MUTATORS, Rng, Verdict, case, mutant, try_plan};
use memfit_verify::verify;

#[test]
fn good_plans_are_right_and_accepted() {
    for seed in 0..3000 {
        let case = case(seed);
        let truth = Truth::of(&case.graph);
        let ran = check(&truth, &case.graph, &case.limits, &case.plan);
        let peaks = ran.unwrap_or_else(|fault| panic!("seed {seed}: {fault:?}\n{}", case.replay()));
        match verify(&case.graph, &case.limits, case.plan.clone()) {
            Ok(verified) => assert_eq!(verified.peaks(), peaks, "seed {seed}\n{}", case.replay()),
            Err(rejected) => panic!("seed {seed}: {rejected}\n{}", case.replay()),
        }
    }
}

#[test]
fn mutants_that_are_accepted_are_right() {
    let mut tally = vec![[0u32; 4]; MUTATORS.len()];
    for seed in 0..2000 {
        let case = case(seed);
        let truth = Truth::of(&case.graph);
        let mut rng = Rng::new(seed);
        for (which, mutant) in (0..6).filter_map(|_| mutant(&case, &mut rng)) {
            let (verdict, _) = try_plan(&truth, &mutant);
            let name = MUTATORS[which].0;
            assert_ne!(verdict, Verdict::AcceptedWrong, "seed {seed}, {name}\n{}", mutant.replay());
            tally[which][verdict as usize] += 1;
        }
    }
    for ((name, _), row) in MUTATORS.iter().zip(tally) {
        assert!(row.iter().sum::<u32>() > 0, "no mutant by {name}");
    }
}
