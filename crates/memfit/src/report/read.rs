//! Any file that memfit can show, as a report: what it is, is found from its bytes.

use memfit_formats::plan_json::{self, PlanFile};
use memfit_formats::report::Report;
use memfit_ir::{Device, Graph};

use super::plan::{Whose, of_file, of_planned};
use super::run::{is_run, of_run};
use super::snapshot::of_snapshot;
use super::what_if::{front, what_if};
use crate::{Budget, Failure, Goal, Options, Tools, check, explain, input, plan};

/// A step of more ops is not planned several times over unless somebody says how long that may take.
const MANY: usize = 4000;

/// What is to be shown, and how much of it.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// A plan, a graph, a snapshot of the CUDA allocator, or the object of a training; plain or compressed.
    pub file: &'a [u8],
    /// How to read it where it is a graph.
    pub reading: input::Options,
    /// The graph that a plan was made for: then the verifier checks the plan first.
    pub graph: Option<Graph>,
    /// The device whose times are shown; `None`: that of the plan, or [`Asked::assumed`].
    pub device: Option<Device>,
    /// The device where none is known.
    pub assumed: Device,
    /// Device memory that a graph is planned for; `None`: all that the step takes.
    pub budget: Option<Budget>,
    /// Means and strategies of plans that are made.
    pub options: Options,
    /// Index of the device of a snapshot; `None`: the one that holds most.
    pub index: Option<u64>,
    /// Whether what each means would give by itself is shown: some more plans. Of a step of thousands of ops, only under a time limit.
    pub what_if: bool,
    /// Whether what each budget costs is shown: a plan for each of a few.
    pub front: bool,
}

impl Asked<'_> {
    /// The report.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a file that can't be read; as [`check()`] for a plan with its graph, [`Failure::Usage`] for one without
    /// that names what does not exist; as [`plan`] for a graph.
    pub fn report(&self, tools: &Tools<'_>) -> Result<Report, Failure> {
        if input::is_snapshot(self.file) {
            return of_snapshot(self.file, self.index, tools);
        }
        if plan_json::is_plan(self.file) {
            return self.of_plan(tools);
        }
        if is_run(self.file) {
            return of_run(self.file);
        }
        let graph = input::graph(self.file, &self.reading)?;
        let device = self.device.as_ref().unwrap_or(&self.assumed).clone();
        let budget = self.budget.unwrap_or(Budget::OfPeak(1.0));
        let goal = Goal { budget, device, options: self.options.clone() };
        let planned = plan(&graph, &goal, tools)?;
        let mut report = of_planned(&graph, &goal, &planned);
        let goal = Goal { budget: Budget::Bytes(planned.summary.budget), ..goal };
        self.more(&mut report, &graph, &goal, tools)?;
        Ok(report)
    }

    fn of_plan(&self, tools: &Tools<'_>) -> Result<Report, Failure> {
        let file = plan_json::read(self.file)?;
        let Some(graph) = &self.graph else {
            let whose = Whose { graph: None, device: &self.assumed };
            complete(&file)?;
            return Ok(of_file(&file, whose));
        };
        // What it loses is of no account here.
        let (file, _) = check(self.file, graph, None, &file.header.lossy)?;
        let made_for = self.device.clone().or_else(|| input::device(&file.header.device).ok());
        let device = made_for.as_ref().unwrap_or(&self.assumed).clone();
        let mut report = of_file(&file, Whose { graph: Some(graph), device: &device });
        if made_for.is_none() {
            report.notes.push(format!(
                "Times that the graph does not say, and those of copies, are those of {}: `{}` is no device that is known by name.",
                device.name, file.header.device
            ));
        }
        let goal = Goal { budget: Budget::Bytes(file.header.budget), device, options: self.options.clone() };
        self.more(&mut report, graph, &goal, tools)?;
        Ok(report)
    }

    /// What other plans would give.
    fn more(
        &self,
        report: &mut Report,
        graph: &Graph,
        goal: &Goal,
        tools: &Tools<'_>,
    ) -> Result<(), Failure> {
        if self.what_if && graph.op_count() > MANY && tools.until.is_none() {
            let text =
                "What each means would give takes minutes for a step of that size: a time limit has it.";
            report.notes.push(text.to_owned());
        } else if self.what_if {
            let found = match explain(graph, goal, 1, 0, tools) {
                Ok(found) => Some(found),
                Err(Failure::Timeout(_)) => None,
                Err(failure) => return Err(failure),
            };
            report.what_if = what_if(graph, goal, found.as_ref(), tools)?;
        }
        if self.front {
            report.front.push(front(graph, goal, tools)?);
        }
        Ok(())
    }
}

/// Whether a plan that no verifier has checked may be shown: it names only what exists.
///
/// # Errors
///
/// [`Failure::Usage`] where it does not.
pub fn complete(file: &PlanFile) -> Result<(), Failure> {
    let plan = &file.plan;
    let complete = plan.program.is_well_formed() && plan.layout.places.len() == plan.program.buffers.len();
    let wrong =
        || Failure::usage("the plan names what does not exist", "name its graph after it to see where");
    complete.then_some(()).ok_or_else(wrong)
}
