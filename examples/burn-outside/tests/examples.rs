//! Each example runs, stays within its budget, and has something to do to stay there.

use memfit_burn::{FlexDevice, report};

#[test]
fn all_examples_run_within_their_budgets() {
    for (name, main) in burn_outside::examples::ALL {
        main().unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let report = report(&FlexDevice);
        let (engine, budget) = (report.engine, report.budget.expect("a budget"));
        assert!(engine.peak <= budget, "{name}: {} of {budget}", engine.peak);
        let moves = name == "spill";
        assert_eq!(engine.stored.0 > 0, moves, "{name}: {engine:?}");
        // With a disk, what is cheaper to compute than to read is computed, by the times measured.
        assert!(moves || engine.recomputes > 0, "{name}: {engine:?}");
    }
}
