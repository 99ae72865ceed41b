//! The front door: files and options in, JSON objects and files out; `memfit._door` makes classes of them.

use memfit::formats::report::{chrome_trace, html, memory_viz, perfetto};
use memfit::formats::{graph_json, plan_json};
use memfit::ir::Codec;
use memfit::report::{Asked, Whose, of_file};
use memfit::strategies::shard;
use memfit::{
    Budget, Bytes, Device, Failure, Floor, Goal, Graph, LaneRule, Nanos, Options, PlaceGoal, check, compare,
    explain, input, objects, place, plan, simplify, sweep,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde_json::Value;

use crate::failure::raise;
use crate::solve::solve;

/// The device of a report where none is known.
const ASSUMED: &str = "A100-80";

/// Adds the front door to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(py_plan, module)?)?;
    module.add_function(wrap_pyfunction!(py_check, module)?)?;
    module.add_function(wrap_pyfunction!(py_explain, module)?)?;
    module.add_function(wrap_pyfunction!(explain_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(is_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(py_floor, module)?)?;
    module.add_function(wrap_pyfunction!(report, module)?)?;
    module.add_function(wrap_pyfunction!(export, module)?)?;
    module.add_function(wrap_pyfunction!(py_place, module)?)?;
    module.add_function(wrap_pyfunction!(py_compare, module)?)?;
    module.add_function(wrap_pyfunction!(py_sweep, module)?)?;
    module.add_function(wrap_pyfunction!(py_shard, module)?)?;
    module.add_function(wrap_pyfunction!(py_simplify, module)?)?;
    module.add_function(wrap_pyfunction!(py_strategies, module)?)?;
    module.add_function(wrap_pyfunction!(parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(show_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(show_nanos, module)?)
}

/// A graph file and how to read it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Source {
    file: PyBackedBytes,
    dims: Vec<(String, u64)>,
}

impl Source {
    fn options(&self) -> input::Options {
        input::Options { dims: self.dims.iter().cloned().collect(), ..input::Options::default() }
    }

    fn graph(&self) -> Result<Graph, Failure> {
        input::graph(&self.file, &self.options())
    }
}

/// A goal, in the words of the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Means {
    budget: Option<String>,
    device: String,
    /// Text of the file that `device` names, if it names one.
    device_file: Option<PyBackedBytes>,
    strategy: Vec<String>,
    recompute: bool,
    lossy: Vec<String>,
    host_budget: Option<String>,
    disk_budget: Option<String>,
    replay_random: Option<bool>,
    lanes: u16,
    allow_serialize: bool,
    in_place: bool,
    co_share: bool,
    seed: u64,
    time_limit: Option<f64>,
}

impl Means {
    fn device(&self) -> Result<Device, Failure> {
        match &self.device_file {
            Some(file) => input::device_file(&String::from_utf8_lossy(file)),
            None => input::device(&self.device),
        }
    }

    fn goal(&self) -> Result<Goal, Failure> {
        if !(1..=64).contains(&self.lanes) {
            return Err(Failure::usage(format!("`lanes` is {}", self.lanes), "write a number from 1 to 64"));
        }
        let budget = self.budget.as_deref().map_or(Ok(Budget::Device), budget)?;
        Ok(Goal { budget, device: self.device()?, options: self.options()? })
    }

    fn options(&self) -> Result<Options, Failure> {
        let size = |text: &Option<String>| text.as_deref().map(bytes).transpose();
        Ok(Options {
            strategies: self.strategy.clone(),
            means: memfit::Means { recompute: self.recompute, ..memfit::Means::ALL },
            lossy: codecs(&self.lossy)?,
            host_budget: size(&self.host_budget)?,
            disk_budget: size(&self.disk_budget)?,
            replays_random: self.replay_random,
            lanes: self.lanes,
            lane_rule: if self.allow_serialize { LaneRule::AllowSerialize } else { LaneRule::Reachable },
            in_place: self.in_place,
            co_share: self.co_share,
            seed: self.seed,
            effort: effort(self.time_limit),
        })
    }
}

/// How much work searches do: under a time limit as much as it allows.
fn effort(time_limit: Option<f64>) -> u32 {
    if time_limit.is_some() { u32::MAX } else { 1 }
}

fn budget(text: &str) -> Result<Budget, Failure> {
    text.parse::<Budget>().map_err(|bad| Failure::usage(bad.to_string(), "budget=\"8GiB\""))
}

/// Codecs that lose something, by their names.
fn codecs(names: &[String]) -> Result<Vec<Codec>, Failure> {
    let known = || Codec::ALL.iter().filter(|(codec, _)| codec.is_lossy()).map(|(_, name)| *name);
    let codec = |name: &String| {
        let codec = Codec::by_name(name).filter(|codec| codec.is_lossy());
        let known = || format!("there are `{}`", known().collect::<Vec<_>>().join("`, `"));
        codec.ok_or_else(|| Failure::usage(format!("there is no lossy codec `{name}`"), known()))
    };
    names.iter().map(codec).collect()
}

fn bytes(text: &str) -> Result<Bytes, Failure> {
    let bad = || Failure::usage(format!("`{text}` is not a size"), "write bytes, or `8GiB`");
    text.parse::<Bytes>().map_err(|_| bad())
}

/// The object and the plan file.
#[pyfunction]
#[pyo3(name = "plan")]
fn py_plan<'py>(py: Python<'py>, source: Source, means: Means) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let (object, file) = solve(py, means.time_limit, |tools| {
        let (graph, goal) = (source.graph()?, means.goal()?);
        let planned = plan(&graph, &goal, tools)?;
        let file = plan_json::write(&planned.file(&graph, &goal));
        Ok((objects::plan(&graph, &goal, &planned.summary), file))
    })?;
    Ok((object.to_string(), PyBytes::new(py, &file)))
}

/// The object; an exception where the verifier refuses.
#[pyfunction]
#[pyo3(name = "check")]
fn py_check(
    py: Python<'_>,
    file: &[u8],
    source: Source,
    budget: Option<&str>,
    lossy: Vec<String>,
) -> PyResult<String> {
    text(solve(py, None, |_| {
        let budget = budget.map(bytes).transpose()?;
        let (file, verified) = check(file, &source.graph()?, budget, &codecs(&lossy)?)?;
        Ok(objects::check(&file, &verified, budget))
    }))
}

/// The object; modules are cut to `depth` components, `top` of the largest buffers are listed.
#[pyfunction]
#[pyo3(name = "explain")]
fn py_explain(py: Python<'_>, source: Source, means: Means, depth: usize, top: usize) -> PyResult<String> {
    text(solve(py, means.time_limit, |tools| {
        let graph = source.graph()?;
        Ok(objects::explanation(&graph, &explain(&graph, &means.goal()?, depth, top, tools)?))
    }))
}

/// The object, for a snapshot of PyTorch's CUDA memory; `device` is an index.
#[pyfunction]
fn explain_snapshot(py: Python<'_>, file: &[u8], device: Option<u64>, top: usize) -> PyResult<String> {
    text(solve(py, None, |tools| Ok(objects::snapshot(&memfit::explain_snapshot(file, device, top, tools)?))))
}

/// Whether a file is such a snapshot, and no graph.
#[pyfunction]
fn is_snapshot(file: &[u8]) -> bool {
    input::is_snapshot(file)
}

/// The page of a plan, a graph, a snapshot or a training; `facts` are shown with it.
#[pyfunction]
fn report(
    py: Python<'_>,
    source: Source,
    graph: Option<Source>,
    means: Means,
    index: Option<u64>,
    extent: (bool, bool),
    facts: Vec<(String, String)>,
) -> PyResult<String> {
    solve(py, means.time_limit, |tools| {
        let (what_if, front) = extent;
        let asked = Asked {
            file: &source.file,
            reading: source.options(),
            graph: graph.map(|graph| graph.graph()).transpose()?,
            device: (!means.device.is_empty()).then(|| means.device()).transpose()?,
            assumed: input::device(ASSUMED)?,
            budget: means.budget.as_deref().map(budget).transpose()?,
            options: means.options()?,
            index,
            what_if,
            front,
        };
        let mut report = asked.report(tools)?;
        report.facts.splice(0..0, facts);
        Ok(html(&report))
    })
}

/// A plan for a viewer: `perfetto`, `chrome-trace` or `memory-viz`; or its model with its offsets: `tflite`.
#[pyfunction]
fn export<'py>(
    py: Python<'py>,
    file: &[u8],
    source: Source,
    device: &str,
    to: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = solve(py, None, |_| {
        let (file, graph) = (plan_json::read(file).map(|read| (read.header.lossy, file))?, source.graph()?);
        let (file, _) = check(file.1, &graph, None, &file.0)?;
        if to == "tflite" {
            return input::with_offsets(&source.file, &source.options(), &file);
        }
        let named = if device.is_empty() { &file.header.device } else { device };
        let device = match input::device(named) {
            Err(_) if device.is_empty() => input::device(ASSUMED)?,
            device => device?,
        };
        let report = of_file(&file, Whose { graph: Some(&graph), device: &device });
        match to {
            "perfetto" => Ok(perfetto(&report)),
            "chrome-trace" => Ok(chrome_trace(&report).to_string().into_bytes()),
            "memory-viz" => Ok(memory_viz(&report)),
            _ => {
                let known = "there are `perfetto`, `chrome-trace`, `memory-viz` and `tflite`";
                Err(Failure::usage(format!("a plan can't be exported to `{to}`"), known))
            }
        }
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// The object and the graph of one rank; `link` in bytes per second, `latency` in nanoseconds.
#[pyfunction]
#[pyo3(name = "shard")]
fn py_shard<'py>(
    py: Python<'py>,
    source: Source,
    means: Means,
    how: (u32, String, bool),
    units: Vec<String>,
    ring: (f64, u64),
) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let ((ranks, stage, buckets), (link, latency)) = (how, ring);
    let (object, file) = solve(py, None, |_| {
        let Some(stage) = shard::stage(&stage) else {
            let known: Vec<&str> = shard::STAGES.iter().map(|stage| stage.info().name).collect();
            let hint = format!("there are `{}`", known.join("`, `"));
            return Err(Failure::usage(format!("there is no stage `{stage}`"), hint));
        };
        let ring = shard::Ring { bandwidth: link, latency: Nanos(latency) };
        let sharding = shard::Sharding { ranks, stage, ring, buckets, units: &units };
        let device = means.device()?;
        let found = memfit::shard(&source.graph()?, &device, &sharding)?;
        let file = graph_json::write(&found.after.graph);
        Ok((objects::sharded(&sharding, &device, &found).to_string(), file))
    })?;
    Ok((object, PyBytes::new(py, &file)))
}

/// The object and the simplified graph.
#[pyfunction]
#[pyo3(name = "simplify")]
fn py_simplify<'py>(
    py: Python<'py>,
    source: Source,
    means: Means,
) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let (object, file) = solve(py, means.time_limit, |tools| {
        // As the command does it, so that the same graph comes out.
        let options = Options { seed: means.seed, ..Options::default() };
        let (graph, goal) =
            (source.graph()?, Goal { budget: Budget::Device, device: means.device()?, options });
        let made = simplify(&graph, &goal, tools)?;
        Ok((
            objects::simplification(&graph, &goal, &made).to_string(),
            graph_json::write(&made.rewrite.graph),
        ))
    })?;
    Ok((object, PyBytes::new(py, &file)))
}

/// The object.
#[pyfunction]
#[pyo3(name = "floor")]
fn py_floor(py: Python<'_>, source: Source, means: Means) -> PyResult<String> {
    text(solve(py, None, |_| {
        let graph = source.graph()?;
        Ok(objects::floor(&graph, &Floor::of(&graph, means.device()?.align)))
    }))
}

/// The object and an offset for each row of the CSV file.
#[pyfunction]
#[pyo3(name = "place")]
fn py_place(
    py: Python<'_>,
    file: &[u8],
    capacity: Option<&str>,
    placer: &str,
    align: u64,
    seed: u64,
    time_limit: Option<f64>,
) -> PyResult<(String, Vec<u64>)> {
    let (object, offsets) = solve(py, time_limit, |tools| {
        let (buffers, _) = input::buffers(file, &input::Options::default(), None)?;
        let goal = PlaceGoal {
            capacity: capacity.map(bytes).transpose()?,
            align: Bytes(align.max(1)),
            placer: placer.to_owned(),
            seed,
            effort: effort(time_limit),
        };
        let placed = place(&buffers, &goal, tools)?;
        Ok((objects::placed(buffers.len(), &goal, &placed), placed.offsets))
    })?;
    Ok((object.to_string(), offsets.iter().map(|offset| offset.0).collect()))
}

/// The object: every strategy at one budget.
#[pyfunction]
#[pyo3(name = "compare")]
fn py_compare(py: Python<'_>, source: Source, means: Means) -> PyResult<String> {
    text(solve(py, means.time_limit, |tools| {
        let (graph, goal) = (source.graph()?, means.goal()?);
        Ok(objects::compared(&graph, &goal, &compare(&graph, &goal, tools)?))
    }))
}

/// The object: one goal at many budgets.
#[pyfunction]
#[pyo3(name = "sweep")]
fn py_sweep(py: Python<'_>, source: Source, means: Means, budgets: Vec<String>) -> PyResult<String> {
    text(solve(py, means.time_limit, |tools| {
        let (graph, goal) = (source.graph()?, means.goal()?);
        let budgets: Vec<Budget> = budgets.iter().map(|text| budget(text)).collect::<Result<_, _>>()?;
        Ok(objects::swept(&graph, &goal, &sweep(&graph, &goal, &budgets, &[], tools)?))
    }))
}

/// The object: what memfit can do.
#[pyfunction]
#[pyo3(name = "strategies")]
fn py_strategies() -> String {
    objects::strategies().to_string()
}

/// `8GiB` as a number.
#[pyfunction]
fn parse_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    bytes(text).map(|bytes| bytes.0).map_err(|failure| raise(py, &failure))
}

/// A number as `1.62 GiB`.
#[pyfunction]
fn show_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A number as `12.3 ms`.
#[pyfunction]
fn show_nanos(nanos: u64) -> String {
    Nanos(nanos).to_string()
}

fn text(object: PyResult<Value>) -> PyResult<String> {
    object.map(|object| object.to_string())
}
