//! `memfit run`: a real training within a budget, beside the same one without.

mod heap;
mod largest;
mod measure;
mod processor;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum, builder::PossibleValue};
use memfit::engine::replay::{Outcome, Trace, replay};
use memfit::engine::{Fault, Recorded, Settings};
use memfit::{Budget, Bytes, Family, Floor, Nanos, StepPlanner};
use memfit_burn::zoo::{self, Apart, Model, Seen, Training, Where};
use memfit_burn::{Mode, Options, Report};

use super::policy::PolicyArgs;
use crate::error::Error;
use crate::output::Output;
use measure::Measured;

#[derive(Clone, Copy, Debug)]
struct Named(Model);

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Named] {
        const ALL: [Named; Model::ALL.len()] = {
            let mut all = [Named(Model::ResNet18); Model::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = Named(Model::ALL[at].0);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()))
    }
}

/// When decisions are made
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// While the step runs
    Online,
    /// An early step is recorded and planned, those after it follow the plan
    Planned,
    /// Never: memfit counts, and evicts nothing
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Processor {
    /// All cores
    Cpu,
    /// The first CUDA device; needs a build with `--features cuda`
    Cuda,
}

#[derive(Debug, ClapArgs)]
pub(in crate::commands) struct RunArgs {
    /// The network
    model: Named,
    /// Memory its tensors may take: `200MiB`, `50%` of what they take without a limit, `floor+50%`
    #[arg(long, short, value_name = "SIZE|%")]
    budget: Option<Budget>,
    /// Memory of this machine that tensors may be moved to between two uses [default: none]
    #[arg(long, value_name = "SIZE")]
    host_budget: Option<Bytes>,
    /// A part of a disk for the same, in a file without a name [default: none]
    #[arg(long, value_name = "SIZE", requires = "spill")]
    disk_budget: Option<Bytes>,
    /// The directory whose disk that is
    #[arg(long, value_name = "DIR", requires = "disk_budget", value_hint = clap::ValueHint::DirPath)]
    spill: Option<PathBuf>,
    /// Bytes per second at most on the way to host memory and back [default: what copying takes here]
    #[arg(long, value_name = "SIZE/s", value_parser = rate, requires = "host_budget")]
    link: Option<f64>,
    /// Run no op again: move tensors only [strategy: `offload:best`]
    #[arg(long, conflicts_with = "strategy")]
    no_recompute: bool,
    /// Lossless codecs by which plans may hold tensors between two uses: `zvc` and `csr` drop zeros, `binarize` keeps signs where only
    /// those are read [default: none]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    codec: Vec<String>,
    /// Codecs that lose something, such as `int8+mask` or `cast-bf16`, or `gist` or `actnn` for several, where no plan without them
    /// fits; gradients of the last steps are compared with exact ones then [default: none]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    lossy: Vec<String>,
    /// How many steps
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10000))]
    steps: u16,
    /// Examples to a step [default: 8 or 16, by network]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: Option<u16>,
    /// Backend
    #[arg(long, value_enum, default_value = "cpu")]
    backend: Processor,
    /// When it is decided what goes
    #[arg(long, value_enum, default_value = "online")]
    mode: When,
    /// What plans: `auto` for the cheapest of all ways, `evict:planned`, a scheduler, `offload:best`, `compress:best` or `hybrid:best` [default:
    /// auto]
    #[arg(long, value_name = "NAME", value_parser = strategy)]
    strategy: Option<&'static str>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Beside it also the other modes, and Burn's own checkpointing
    #[arg(long)]
    compare: bool,
    /// Look for the largest batch that can be trained in the budget [default: what a batch of 8 takes without memfit]
    #[arg(long, conflicts_with_all = ["compare", "batch"])]
    max_batch: bool,
    /// What ops take for themselves while they run counts within the budget, too
    #[arg(long)]
    scratch: bool,
    /// Compare all gradients of each step as well, not only what becomes of them
    #[arg(long)]
    gradients: bool,
    /// Record the last step, and write a page to look at to this file
    #[arg(long, value_name = "FILE.html", conflicts_with = "max_batch", value_hint = clap::ValueHint::FilePath)]
    report: Option<PathBuf>,
}

/// What a training takes when nothing limits it, from a recorded step.
struct Profile {
    trace: Trace,
    floor: Bytes,
    /// What no plan goes below, with all that may be elsewhere: at most the floor.
    bound: Bytes,
    /// What tensors take without a limit.
    peak: Bytes,
}

/// What is expected of a budget.
struct Expected {
    peak: Bytes,
    time: Nanos,
}

/// A row of the result.
struct Row {
    name: &'static str,
    measured: Measured,
    report: Option<Report>,
    expected: Option<Expected>,
    /// What its tensors took, where no report says so.
    peak: Option<Bytes>,
    /// How far its gradients are from exact ones, where something is lost.
    gradients: Vec<Apart>,
    /// Whether losses, parameters and gradients are those that they should be.
    same: bool,
    /// Whether memfit draws other random numbers than the backend alone, so that its results are those within memfit without a
    /// limit.
    own_draws: bool,
}

impl Row {
    /// A training that memfit has no part in, and what its tensors took at most, if that is known.
    fn beside(name: &'static str, measured: Measured, peak: Option<Bytes>) -> Row {
        Row {
            name,
            measured,
            report: None,
            expected: None,
            peak,
            gradients: Vec::new(),
            same: true,
            own_draws: false,
        }
    }
}

/// Steps whose gradients are compared with exact ones.
const SAMPLED: usize = 3;

pub(super) fn run(args: &RunArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let device = match args.backend {
        Processor::Cpu => Where::Cpu,
        #[cfg(feature = "cuda")]
        Processor::Cuda => Where::Cuda,
        #[cfg(not(feature = "cuda"))]
        Processor::Cuda => {
            let hint = "build it in: `cargo run --release --features cuda -- run …`";
            return Err(memfit::Failure::usage("this memfit has no CUDA backend", hint).into());
        }
    };
    let mut training = Training { steps: usize::from(args.steps), seed, ..Training::new(args.model.0) };
    training.batch = args.batch.map_or(training.batch, usize::from);
    training.gradients = args.gradients;
    let common = common(args, seed)?;
    if args.max_batch {
        return largest::run(args, &training, device, common, output);
    }
    let progress = |what: &'static str| {
        move |seen: &Seen| {
            let (step, loss) = (seen.step + 1, seen.loss);
            output.progress(&format!("{what}: step {step} of {}, loss {loss:.4}", args.steps));
        }
    };
    let plain = measure::plain(&training, device, false, &progress("without memfit")).map_err(fault)?;
    let profile = profile(&training, device, common, &progress("recording"))?;
    let budget = match args.budget {
        Some(Budget::Device) | None => Budget::OfPeak(1.0),
        Some(budget) => budget,
    };
    let budget = match budget {
        Budget::Bytes(bytes) => bytes,
        Budget::OfPeak(share) => part(profile.peak, share),
        Budget::AboveFloor(share) => profile.floor + part(profile.peak.saturating_sub(profile.floor), share),
        Budget::Device => profile.peak,
    };
    let infeasible = |plain: &Measured| {
        let mode = if args.mode == When::None { When::Online } else { args.mode };
        let enough = enough(&training, device, &profile, plain, options(mode, budget, common), output);
        show::infeasible(&training, &profile, budget, enough, output)
    };
    if budget < profile.bound && args.mode != When::None {
        return Err(infeasible(&plain)?);
    }
    let mut rows = vec![Row::beside("without memfit", plain, None)];
    let mut modes = vec![args.mode];
    if args.compare {
        let measured =
            measure::plain(&training, device, true, &progress("Burn's checkpointing")).map_err(fault)?;
        let few = Training { steps: training.steps.min(2), gradients: false, ..training };
        let peak = Some(measure::balanced_peak(&few, device, common).map_err(fault)?);
        rows.push(Row::beside("balanced", measured, peak));
        if args.mode != When::None {
            modes = vec![When::None, When::Online, When::Planned];
        }
    }
    let own_draws = !zoo::draws_as_alone(device);
    if own_draws && modes[0] != When::None {
        modes.insert(0, When::None);
    }
    let mut ran = None;
    for mode in modes {
        // Who waits for a step that takes many times as long?
        let patience = patience(&rows[0].measured, 5 * training.steps);
        let record = args.report.is_some() && mode == args.mode;
        let options = Options { patience, record, ..options(mode, budget, common) };
        let name = name(mode);
        let within = measure::within(&training, device, options, &progress(name));
        let (measured, report, recorded) = match within {
            Ok(measured) => measured,
            Err(Fault::NoRoom(_)) => return Err(infeasible(&rows[0].measured)?),
            // One way that is too slow leaves the others to be shown.
            Err(Fault::TooSlow(_)) if args.compare && mode != args.mode => continue,
            Err(other) => return Err(stuck(other, mode == When::Online)),
        };
        ran = recorded.or(ran);
        let expected = foreseen(mode, &profile, budget, &report);
        let gradients = match measured.lossy.is_empty() {
            true => Vec::new(),
            false => gradients(&training, device, options, output)?,
        };
        let report = Some(report);
        rows.push(Row { name, measured, report, expected, peak: None, gradients, same: false, own_draws });
    }
    compare(&mut rows);
    show::results(args, &training, &profile, (budget, ran.as_ref()), &rows, output)
}

/// What was to be expected of a training whose memory is decided on as `mode` says.
fn foreseen(mode: When, profile: &Profile, budget: Bytes, report: &Report) -> Option<Expected> {
    match mode {
        When::None => Some(Expected { peak: profile.peak, time: profile.trace.base().time }),
        When::Online => expected(&profile.trace, budget),
        When::Planned => report.predicted.map(|parts| Expected { peak: budget, time: parts.sum() }),
    }
}

/// Notes which rows have the results that they should have: those without memfit, or, where memfit draws other random numbers,
/// those within it without a limit.
fn compare(rows: &mut [Row]) {
    let find =
        |own| rows.iter().find(|row: &&Row| row.own_draws == own).map(|row| row.measured.trained.clone());
    let (alone, within) = (find(false), find(true));
    for row in rows {
        let should = if row.own_draws { &within } else { &alone };
        row.same = should.as_ref() == Some(&row.measured.trained);
    }
}

/// How far the gradients of the last training's plan are from exact ones.
fn gradients(
    training: &Training,
    device: Where,
    options: Options,
    output: &Output,
) -> Result<Vec<Apart>, Error> {
    output.progress("comparing gradients with exact ones");
    let saved = zoo::saved(device)?;
    zoo::gradients(training, device, options, (saved.as_ref(), SAMPLED)).map_err(fault)
}

/// What all trainings of a call have in common.
fn common(args: &RunArgs, seed: u64) -> Result<Options, Error> {
    let size = |bytes: Bytes| memfit_burn::Budget::of(bytes.0);
    let disk = args.disk_budget.zip(args.spill.clone()).map(|(budget, directory)| memfit_burn::Disk {
        budget: size(budget),
        // There is one, for as long as the process runs.
        directory: Box::leak(directory.into_boxed_path()),
    });
    let strategy = args.strategy.unwrap_or(if args.no_recompute { "offload:best" } else { memfit::AUTO });
    // One name for as long as the process runs, of those that there are.
    let known = Family::called("evict").map(|family| family.strategy(&args.policy.evictor));
    let evictor = known.transpose().map_err(memfit::Failure::from)?;
    Ok(Options {
        seed,
        strategy,
        evictor: evictor.map_or("best", |strategy| strategy.info().name),
        sieve: args.policy.sieve(),
        exponents: args.policy.exponents()?,
        disk,
        scratch: args.scratch,
        host: args.host_budget.map(size),
        link: args.link,
        recompute: !args.no_recompute,
        lossless: forever(&args.codec),
        lossy: forever(&args.lossy),
        ..Options::default()
    })
}

/// Names that stay for as long as the process runs.
fn forever(names: &[String]) -> &'static [&'static str] {
    let names: Vec<&'static str> =
        names.iter().map(|name| &*Box::leak(name.clone().into_boxed_str())).collect();
    Box::leak(names.into_boxed_slice())
}

/// Bytes per second: a size, with or without `/s`.
fn rate(text: &str) -> Result<f64, String> {
    let bytes: Bytes = text.strip_suffix("/s").unwrap_or(text).parse().map_err(|error| format!("{error}"))?;
    if bytes == Bytes::ZERO { Err("a link carries something".to_owned()) } else { Ok(bytes.0 as f64) }
}

/// The strategy for recorded steps called `name`.
fn strategy(name: &str) -> Result<&'static str, String> {
    let bare = name.strip_prefix("recompute:").unwrap_or(name);
    let known = StepPlanner::strategies();
    let found = known.iter().find(|known| **known == bare).copied();
    found.ok_or_else(|| format!("known: {}", known.join(", ")))
}

fn name(mode: When) -> &'static str {
    match mode {
        When::None => "no limit",
        When::Online => "online",
        When::Planned => "planned",
    }
}

fn options(mode: When, budget: Bytes, common: Options) -> Options {
    Options {
        budget: memfit_burn::Budget::of(if mode == When::None { 1 << 62 } else { budget.0 }),
        mode: if mode == When::Planned { Mode::Planned } else { Mode::Online },
        ..common
    }
}

fn part(bytes: Bytes, share: f64) -> Bytes {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Bytes((bytes.0 as f64 * share) as u64)
}

/// Runs two steps without a limit, and records the second.
fn profile(
    training: &Training,
    device: Where,
    common: Options,
    progress: &dyn Fn(&Seen),
) -> Result<Profile, Error> {
    let training = Training { steps: 2, gradients: false, ..*training };
    let options = Options { record: true, ..common };
    let (_, report, recorded) = measure::within(&training, device, options, progress).map_err(fault)?;
    let recorded: Recorded = recorded.unwrap_or_default();
    let floor = Floor::of(&recorded.graph, Bytes(1)).bytes;
    let bound = Floor::below(&recorded.graph, Bytes(1), elsewhere(&common)).bytes;
    Ok(Profile { floor, bound, peak: report.engine.peak, trace: recorded.trace })
}

/// Bytes of other memory in which parameters and state may be between their uses.
fn elsewhere(options: &Options) -> Bytes {
    let tiers = [options.host, options.disk.map(|disk| disk.budget)];
    Bytes(tiers.into_iter().flatten().fold(0, |sum, tier| sum.saturating_add(tier.bytes().0)))
}

/// As `memfit-burn` counts: bytes, without addresses.
fn virtual_settings(budget: Bytes) -> Settings {
    Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(budget) }
}

/// What the engine needs for the recorded step in `budget`, in virtual time; nothing if it doesn't fit.
fn expected(trace: &Trace, budget: Bytes) -> Option<Expected> {
    let report = replay(trace, virtual_settings(budget), 20.0).ok()?;
    (report.outcome == Outcome::Done).then(|| Expected {
        peak: report.stats.peak,
        time: Nanos(report.base.time.0.saturating_add(report.stats.recompute_ns)),
    })
}

/// How often a budget has to do before it is called enough: what is evicted depends on times, which differ.
const TRIALS: usize = 3;

/// A budget that was enough in [`TRIALS`] trainings: the least in virtual time, or a little more. Virtual time has one memory; where
/// parameters and state may be in another, the search begins at the bound.
fn enough(
    training: &Training,
    device: Where,
    profile: &Profile,
    plain: &Measured,
    options: Options,
    output: &Output,
) -> Bytes {
    let training = Training { steps: training.steps.min(3), gradients: false, ..*training };
    let least = match profile.bound < profile.floor {
        true => profile.bound,
        false => memfit_burn::least_budget(&profile.trace, profile.floor, profile.peak),
    };
    let above = profile.peak.saturating_sub(least);
    for tenth in 0..10 {
        let budget = least + part(above, f64::from(tenth) / 10.0);
        output.progress(&format!("trying {budget}"));
        let patience = patience(plain, training.steps);
        let options = Options { budget: memfit_burn::Budget::of(budget.0), patience, ..options };
        if (0..TRIALS).all(|_| measure::within(&training, device, options, &|_| {}).is_ok()) {
            return budget;
        }
    }
    profile.peak
}

fn fault(fault: Fault) -> Error {
    stuck(fault, false)
}

/// What has come of a training; `online` if looking ahead may help.
fn stuck(fault: Fault, online: bool) -> Error {
    match fault {
        Fault::NoRoom(_) | Fault::TooSlow(_) => Error::Stuck { why: fault.to_string(), online },
        other => Error::Training(other.to_string()),
    }
}

/// Patience with trainings that go round in circles: four times what the steps take without memfit, and a second for
/// what else the machine does meanwhile.
fn patience(plain: &Measured, steps: usize) -> Duration {
    let time = Duration::from_nanos(plain.time().0);
    time.saturating_mul(u32::try_from(4 * steps).unwrap_or(u32::MAX)).saturating_add(Duration::from_secs(1))
}
