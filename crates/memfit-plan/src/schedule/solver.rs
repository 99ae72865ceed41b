//! The solver of integer programmes that is compiled in, and how large a programme it is given.

use good_lp::{Constraint, Expression, ProblemVariables, ResolutionError, Solution, SolverModel};

/// The most variables that the solver at hand is asked to handle.
pub(super) const MOST: usize = if cfg!(feature = "highs") { 120_000 } else { 500 };

/// Why a programme of `ops` ops with so many variables is not given to the solver at hand, if it is not.
pub(super) fn too_large(ops: usize, variables: usize) -> Option<String> {
    let more = if cfg!(feature = "highs") { "" } else { "; feature `highs` brings a solver for larger ones" };
    (variables > MOST).then(|| {
        format!("the integer programme of {ops} ops has {variables} variables, the solver takes {MOST}{more}")
    })
}

/// The assignment to `vars` within `rows` for which `objective` is least. A solver that has the choice stops after
/// `seconds`.
pub(super) fn minimise(
    vars: ProblemVariables,
    objective: Expression,
    rows: Vec<Constraint>,
    #[cfg_attr(not(feature = "highs"), allow(unused_variables, reason = "for the other solver"))]
    seconds: u32,
) -> Result<impl Solution, ResolutionError> {
    let problem = vars.minimise(objective);
    #[cfg(feature = "highs")]
    let mut problem =
        problem.using(good_lp::solvers::highs::highs).set_time_limit(f64::from(seconds)).set_threads(1);
    #[cfg(not(feature = "highs"))]
    let mut problem = problem.using(good_lp::solvers::microlp::microlp);
    for row in rows {
        problem.add_constraint(row);
    }
    problem.solve()
}
