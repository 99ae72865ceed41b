//! `memfit-plan/1`: a plan as JSON, plain or compressed with Zstandard. The schema is in `docs/plan-json.md`.
//!
//! A plan file is a claim, and meant to be edited: one buffer and one step a line, no checksum over the whole.
//! The reader checks the form only. Whether ids, offsets and sizes make sense is for the verifier to say, so most of
//! [`memfit_ir::Program`] must not be asked about a plan that the verifier has not read.

use memfit_ir::{
    Bank, Buffer, BufferId, Bytes, Codec, Content, CopyId, Digest, HostCopy, Limits, MAX_COUNT, Nanos, OpId,
    Place, Plan, Program, Step, StepId, Tier, ValueId,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::json::{self, MAX_NAME, Object, for_each, is_default};
use crate::{FormatError, unpack};

const SCHEMA: &str = "memfit-plan/1";
/// The most operands of all steps together.
const MAX_OPERANDS: usize = 4 * MAX_COUNT;

/// A plan, and what was promised of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFile {
    /// What runs, at which addresses.
    pub plan: Plan,
    /// For whom it was made and what it claims to need.
    pub header: PlanHeader,
}

/// The conditions a plan was made under, and the figures its maker predicted. Claims, like the plan itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanHeader {
    /// Name of the model, for people; the plan's digest is what ties it to a graph.
    pub graph_name: String,
    /// Name of the strategy that made it.
    pub strategy: String,
    /// Name of the device it was made for.
    pub device: String,
    /// Every buffer starts at a multiple of this, in bytes.
    pub align: Bytes,
    /// Bytes of device memory it was allowed.
    pub budget: Bytes,
    /// The address spaces, in the order that buffers name them.
    pub banks: Vec<Bank>,
    /// Bytes of host memory it was allowed.
    pub host_budget: Bytes,
    /// Bytes of disk it was allowed.
    pub disk_budget: Bytes,
    /// Whether seeded ops may run again, since the host replays the generator's state.
    pub replays_random: bool,
    /// Lossy codecs the user allowed.
    pub lossy: Vec<Codec>,
    /// Number of compute lanes.
    pub lanes: u16,
    /// Claimed bytes of the arena, fragmentation included.
    pub peak: Bytes,
    /// Claimed largest sum of live bytes.
    pub live_peak: Bytes,
    /// Predicted time of the step.
    pub time: Nanos,
    /// Seed it was made with.
    pub seed: u64,
    /// The program that made it, with its version.
    pub generator: String,
}

impl PlanHeader {
    /// The limits the plan claims to keep, as the verifier wants them.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            banks: self.banks.clone(),
            host: self.host_budget,
            disk: self.disk_budget,
            lossy: self.lossy.clone(),
            replays_random: self.replays_random,
            lanes: self.lanes,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    schema: String,
    graph: String,
    graph_name: String,
    strategy: String,
    device: String,
    align: u64,
    budget_bytes: u64,
    #[serde(deserialize_with = "json::objects")]
    banks: Vec<BankJson>,
    host_budget_bytes: u64,
    #[serde(default)]
    disk_budget_bytes: u64,
    replays_random: bool,
    lossy: Vec<String>,
    lanes: u16,
    peak_bytes: u64,
    live_peak_bytes: u64,
    time_ns: u64,
    seed: u64,
    generator: String,
    #[serde(borrow)]
    buffers: &'a RawValue,
    #[serde(borrow)]
    copies: &'a RawValue,
    #[serde(borrow)]
    resident: &'a RawValue,
    #[serde(borrow)]
    parked: &'a RawValue,
    #[serde(borrow)]
    steps: &'a RawValue,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BankJson {
    name: String,
    capacity: u64,
    align: u64,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct BufferJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    workspace: bool,
    size: u64,
    offset: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    bank: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    over: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoded: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct CopyJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    workspace: bool,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoded: Option<String>,
    /// Left out for host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
}

/// Exactly one of the keys but `lane` is there.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct StepJson {
    #[serde(deserialize_with = "json::object", skip_serializing_if = "Option::is_none")]
    compute: Option<ComputeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u32>,
    #[serde(deserialize_with = "json::object", skip_serializing_if = "Option::is_none")]
    offload: Option<Ends>,
    #[serde(deserialize_with = "json::object", skip_serializing_if = "Option::is_none")]
    fetch: Option<Ends>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discard: Option<u32>,
    #[serde(rename = "await", skip_serializing_if = "Option::is_none")]
    wait: Option<u32>,
    #[serde(deserialize_with = "json::object", skip_serializing_if = "Option::is_none")]
    encode: Option<Ends>,
    #[serde(deserialize_with = "json::object", skip_serializing_if = "Option::is_none")]
    decode: Option<Ends>,
    #[serde(skip_serializing_if = "is_default")]
    lane: u16,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ComputeJson {
    op: u32,
    reads: Vec<u32>,
    writes: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    algorithm: u16,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ends {
    from: u32,
    to: u32,
}

/// Whether a file, plain or compressed, says of itself that it is a plan: within its first kilobytes, as [`write()`] does.
#[must_use]
pub fn is_plan(bytes: &[u8]) -> bool {
    let unpacked = unpack(bytes).unwrap_or_default();
    let start = unpacked.trim_ascii_start();
    start.starts_with(b"{")
        && start[..start.len().min(4096)].windows(SCHEMA.len()).any(|part| part == SCHEMA.as_bytes())
}

/// Reads a plan, plain or compressed, without believing it.
///
/// # Errors
///
/// If the file is damaged, has an unknown key or lacks one, exceeds a limit of `docs/plan-json.md`, or has a number
/// that no plan can have. The error names the buffer, copy or step by position.
pub fn read(bytes: &[u8]) -> Result<PlanFile, FormatError> {
    let text = crate::zst::text(bytes)?;
    let file: File<'_> = json::outermost(&text, SCHEMA)?;
    if file.schema != SCHEMA {
        return Err(json::wrong_schema(&file.schema, SCHEMA));
    }
    let graph: Digest = file
        .graph
        .parse()
        .map_err(|error: memfit_ir::BadDigest| FormatError::new("graph", error.to_string()))?;
    let mut plan = Plan { graph, ..Plan::default() };
    let program = &mut plan.program;
    let places = &mut plan.layout.places;
    for_each(&text, file.buffers.get(), "buffers", MAX_COUNT, |at, Object(buffer): Object<BufferJson>| {
        let content = content(buffer.value, buffer.workspace, buffer.encoded.as_deref())
            .map_err(|message| FormatError::new(format!("buffers[{at}]"), message))?;
        program.buffers.push(Buffer { content, size: Bytes(buffer.size), over: buffer.over.map(BufferId) });
        places.push(Place { bank: buffer.bank, offset: Bytes(buffer.offset) });
        Ok(())
    })?;
    for_each(&text, file.copies.get(), "copies", MAX_COUNT, |at, Object(copy): Object<CopyJson>| {
        let content = content(copy.value, copy.workspace, copy.encoded.as_deref())
            .map_err(|message| FormatError::new(format!("copies[{at}]"), message))?;
        let tier = copy.tier.as_deref().map_or(Some(Tier::Host), Tier::by_name);
        let tier =
            tier.ok_or_else(|| FormatError::new(format!("copies[{at}].tier"), "no tier of that name"))?;
        program.copies.push(HostCopy { content, size: Bytes(copy.size), tier });
        Ok(())
    })?;
    for_each(&text, file.resident.get(), "resident", MAX_COUNT, |_, buffer| {
        program.resident.push(BufferId(buffer));
        Ok(())
    })?;
    for_each(&text, file.parked.get(), "parked", MAX_COUNT, |_, copy| {
        program.parked.push(CopyId(copy));
        Ok(())
    })?;
    let mut operands = 0;
    for_each(&text, file.steps.get(), "steps", MAX_COUNT, |at, Object(step): Object<StepJson>| {
        let lane = step.lane;
        operands += step.compute.as_ref().map_or(0, |compute| compute.reads.len() + compute.writes.len());
        if operands > MAX_OPERANDS {
            return Err(FormatError::new("steps", format!("more than {MAX_OPERANDS} operands")));
        }
        let step =
            step_of(step, program).map_err(|message| FormatError::new(format!("steps[{at}]"), message))?;
        if lane != 0 || !program.lanes.is_empty() {
            program.lanes.resize(at, 0);
            program.lanes.push(lane);
        }
        program.steps.push(step);
        Ok(())
    })?;
    let header = header(file)?;
    Ok(PlanFile { plan, header })
}

fn header(file: File<'_>) -> Result<PlanHeader, FormatError> {
    let names = [
        ("graph_name", &file.graph_name),
        ("strategy", &file.strategy),
        ("device", &file.device),
        ("generator", &file.generator),
    ];
    let banks = file.banks.iter().map(|bank| ("banks", &bank.name));
    if let Some((key, _)) = names.into_iter().chain(banks).find(|(_, name)| name.len() > MAX_NAME) {
        return Err(FormatError::new(key, format!("a name longer than {MAX_NAME} bytes")));
    }
    if file.banks.is_empty() || file.banks.len() > usize::from(u16::MAX) {
        let message = format!("{} banks: 1 to {} are possible", file.banks.len(), u16::MAX);
        return Err(FormatError::new("banks", message));
    }
    if let Some(at) = file.banks.iter().position(|bank| bank.align == 0) {
        return Err(FormatError::new(format!("banks[{at}]"), "`align` is 0: at least 1 is needed"));
    }
    if file.align == 0 || file.lanes == 0 {
        let key = if file.align == 0 { "align" } else { "lanes" };
        return Err(FormatError::new(key, "`0` is not possible: at least 1 is needed"));
    }
    let codec = |(at, name): (usize, &String)| {
        by_name(name).map_err(|message| FormatError::new(format!("lossy[{at}]"), message))
    };
    Ok(PlanHeader {
        lossy: file.lossy.iter().enumerate().map(codec).collect::<Result<_, _>>()?,
        graph_name: file.graph_name,
        strategy: file.strategy,
        device: file.device,
        align: Bytes(file.align),
        budget: Bytes(file.budget_bytes),
        banks: file
            .banks
            .into_iter()
            .map(|bank| Bank { name: bank.name, capacity: Bytes(bank.capacity), align: Bytes(bank.align) })
            .collect(),
        host_budget: Bytes(file.host_budget_bytes),
        disk_budget: Bytes(file.disk_budget_bytes),
        replays_random: file.replays_random,
        lanes: file.lanes,
        peak: Bytes(file.peak_bytes),
        live_peak: Bytes(file.live_peak_bytes),
        time: Nanos(file.time_ns),
        seed: file.seed,
        generator: file.generator,
    })
}

fn by_name(name: &str) -> Result<Codec, String> {
    Codec::by_name(name).ok_or_else(|| {
        let name: String = name.chars().take(100).collect();
        let known: Vec<&str> = Codec::ALL.iter().map(|(_, name)| *name).collect();
        format!("there is no codec `{name}`: the codecs are `{}`", known.join("`, `"))
    })
}

fn content(value: Option<u32>, workspace: bool, encoded: Option<&str>) -> Result<Content, String> {
    match (value, workspace, encoded) {
        (Some(value), false, None) => Ok(Content::Value(ValueId(value))),
        (Some(value), false, Some(name)) => Ok(Content::Encoded(ValueId(value), by_name(name)?)),
        (None, true, None) => Ok(Content::Workspace),
        (None, true, Some(_)) => Err("`encoded` is said of a workspace".to_owned()),
        _ => Err("exactly one of `value` and `\"workspace\": true` is needed".to_owned()),
    }
}

fn step_of(step: StepJson, program: &mut Program) -> Result<Step, String> {
    let StepJson { compute, free, offload, fetch, discard, wait, encode, decode, lane: _ } = step;
    let compute = compute.map(|c| {
        let ids = |list: Vec<u32>| list.into_iter().map(BufferId);
        let workspace = c.workspace.map(BufferId);
        program.compute(OpId(c.op), c.algorithm, ids(c.reads), ids(c.writes), workspace)
    });
    let steps = [
        compute,
        free.map(|buffer| Step::Free(BufferId(buffer))),
        offload.map(|ends| Step::Offload { from: BufferId(ends.from), to: CopyId(ends.to) }),
        fetch.map(|ends| Step::Fetch { from: CopyId(ends.from), to: BufferId(ends.to) }),
        discard.map(|copy| Step::Discard(CopyId(copy))),
        wait.map(|step| Step::Await(StepId(step))),
        encode.map(|ends| Step::Encode { from: BufferId(ends.from), to: BufferId(ends.to) }),
        decode.map(|ends| Step::Decode { from: BufferId(ends.from), to: BufferId(ends.to) }),
    ];
    let mut found = steps.into_iter().flatten();
    match (found.next(), found.next()) {
        (Some(step), None) => Ok(step),
        _ => Err("exactly one of `compute`, `free`, `offload`, `fetch`, `discard`, `await`, `encode` and \
                  `decode` is needed"
            .to_owned()),
    }
}

/// Writes a plan: one buffer, copy or step a line, keys in the order of `docs/plan-json.md`, defaults left out, so
/// equal plans give equal bytes, and [`read`] gives the plan back. A buffer that the layout does not cover is written
/// at offset 2⁶⁴ − 1, where the verifier refuses it. Not compressed: see [`crate::compress`].
#[must_use]
pub fn write(file: &PlanFile) -> Vec<u8> {
    let PlanFile { plan: Plan { graph, program, layout }, header } = file;
    let mut out = Vec::with_capacity(program.buffers.len() * 60 + program.steps.len() * 60);
    put_header(&mut out, graph, header);
    let buffers = program.buffers.iter().enumerate().map(|(at, buffer)| {
        let place = layout.places.get(at).copied().unwrap_or(Place { bank: 0, offset: Bytes::MAX });
        let (value, workspace, encoded) = content_json(buffer.content);
        BufferJson {
            value,
            workspace,
            size: buffer.size.0,
            offset: place.offset.0,
            bank: place.bank,
            over: buffer.over.map(|buffer| buffer.0),
            encoded,
        }
    });
    json::put_lines(&mut out, "buffers", buffers);
    let copies = program.copies.iter().map(|copy| {
        let (value, workspace, encoded) = content_json(copy.content);
        let tier = (copy.tier != Tier::Host).then(|| copy.tier.name().to_owned());
        CopyJson { value, workspace, size: copy.size.0, encoded, tier }
    });
    json::put_lines(&mut out, "copies", copies);
    json::put_key(&mut out, "resident", &numbers(&program.resident));
    json::put_key(&mut out, "parked", &program.parked.iter().map(|copy| copy.0).collect::<Vec<_>>());
    let steps = program.steps.iter().enumerate();
    json::put_lines(&mut out, "steps", steps.map(|(at, step)| step_json(program, step, program.lane(at))));
    out.extend_from_slice(b"\n}\n");
    out
}

fn put_header(out: &mut Vec<u8>, graph: &Digest, header: &PlanHeader) {
    let banks: Vec<BankJson> = header
        .banks
        .iter()
        .map(|bank| BankJson { name: bank.name.clone(), capacity: bank.capacity.0, align: bank.align.0 })
        .collect();
    let lossy: Vec<&str> = header.lossy.iter().map(|codec| codec.name()).collect();
    json::put_key(out, "schema", &SCHEMA);
    json::put_key(out, "graph", &graph.to_string());
    json::put_key(out, "graph_name", &header.graph_name);
    json::put_key(out, "strategy", &header.strategy);
    json::put_key(out, "device", &header.device);
    json::put_key(out, "align", &header.align.0);
    json::put_key(out, "budget_bytes", &header.budget.0);
    json::put_key(out, "banks", &banks);
    json::put_key(out, "host_budget_bytes", &header.host_budget.0);
    if header.disk_budget > Bytes::ZERO {
        json::put_key(out, "disk_budget_bytes", &header.disk_budget.0);
    }
    json::put_key(out, "replays_random", &header.replays_random);
    json::put_key(out, "lossy", &lossy);
    json::put_key(out, "lanes", &header.lanes);
    json::put_key(out, "peak_bytes", &header.peak.0);
    json::put_key(out, "live_peak_bytes", &header.live_peak.0);
    json::put_key(out, "time_ns", &header.time.0);
    json::put_key(out, "seed", &header.seed);
    json::put_key(out, "generator", &header.generator);
}

fn numbers(buffers: &[BufferId]) -> Vec<u32> {
    buffers.iter().map(|buffer| buffer.0).collect()
}

fn content_json(content: Content) -> (Option<u32>, bool, Option<String>) {
    match content {
        Content::Value(value) => (Some(value.0), false, None),
        Content::Encoded(value, codec) => (Some(value.0), false, Some(codec.name().to_owned())),
        Content::Workspace => (None, true, None),
    }
}

fn step_json(program: &Program, step: &Step, lane: u16) -> StepJson {
    let mut json = StepJson { lane, ..StepJson::default() };
    match *step {
        Step::Compute(compute) => {
            json.compute = Some(ComputeJson {
                op: compute.op.0,
                reads: numbers(program.reads(&compute)),
                writes: numbers(program.writes(&compute)),
                workspace: compute.workspace.map(|buffer| buffer.0),
                algorithm: compute.algorithm,
            });
        }
        Step::Free(buffer) => json.free = Some(buffer.0),
        Step::Offload { from, to } => json.offload = Some(Ends { from: from.0, to: to.0 }),
        Step::Fetch { from, to } => json.fetch = Some(Ends { from: from.0, to: to.0 }),
        Step::Discard(copy) => json.discard = Some(copy.0),
        Step::Await(step) => json.wait = Some(step.0),
        Step::Encode { from, to } => json.encode = Some(Ends { from: from.0, to: to.0 }),
        Step::Decode { from, to } => json.decode = Some(Ends { from: from.0, to: to.0 }),
    }
    json
}
