//! `memfit-plan/1`: what is written reads back the same; the form is checked, the content is the judge's.

mod common;

use common::{small_graph, survives_every_flip_and_cut, survives_random_damage};
use memfit_formats::plan_json::{self, PlanFile, PlanHeader};
use memfit_formats::{compress, graph_json};
use memfit_ir::{
    Bank, BufferId, Bytes, Codec, Content, CopyId, Layout, Nanos, OpId, Place, Plan, Program, Step, StepId,
    Tier, ValueId,
};

/// Every kind of step, and everything else that the schema has a key for. No judge would accept it.
fn small_plan() -> PlanFile {
    let mut program = Program::default();
    let x = program.buffer(Content::Value(ValueId(0)), Bytes(4096), None);
    let h = program.buffer(Content::Value(ValueId(2)), Bytes(4096), Some(x));
    let scratch = program.buffer(Content::Workspace, Bytes(64), None);
    let small = program.buffer(Content::Encoded(ValueId(2), Codec::CastF16), Bytes(2048), None);
    let copy = program.copy(Content::Value(ValueId(2)), Bytes(4096), Tier::Host);
    let parked = program.copy(Content::Encoded(ValueId(1), Codec::Zvc), Bytes(70_000), Tier::Disk);
    program.resident.push(x);
    program.parked.push(parked);
    let first = program.compute(OpId(0), 0, [x, BufferId(u32::MAX)], [h], None);
    let second = program.compute(OpId(1), 2, [], [], Some(scratch));
    program.steps = vec![
        first,
        Step::Offload { from: h, to: copy },
        Step::Await(StepId(1)),
        second,
        Step::Encode { from: h, to: small },
        Step::Decode { from: small, to: h },
        Step::Fetch { from: copy, to: h },
        Step::Discard(CopyId(9)),
        Step::Free(h),
    ];
    program.lanes = vec![0, 1, 0, 0, 2, 0, 1, 0, 0];
    let place = |bank, offset| Place { bank, offset: Bytes(offset) };
    let layout = Layout { places: vec![place(0, 0), place(0, 0), place(1, 512), place(0, u64::MAX)] };
    let bank =
        |name: &str, capacity| Bank { name: name.into(), capacity: Bytes(capacity), align: Bytes(512) };
    let header = PlanHeader {
        graph_name: "two \"layers\"".into(),
        strategy: "given+largest-first".into(),
        device: "H200".into(),
        align: Bytes(512),
        budget: Bytes(1 << 20),
        banks: vec![bank("device", 1 << 20), bank("scratch", 1 << 10)],
        host_budget: Bytes(1 << 21),
        disk_budget: Bytes(1 << 22),
        replays_random: true,
        lossy: vec![Codec::CastF16],
        lanes: 3,
        peak: Bytes(8192),
        live_peak: Bytes(8000),
        time: Nanos(123_456),
        seed: 7,
        generator: "memfit 0.1.0".into(),
    };
    PlanFile { plan: Plan { graph: small_graph().digest(), program, layout }, header }
}

#[test]
fn a_plan_comes_back_the_same() {
    let file = small_plan();
    let written = plan_json::write(&file);
    insta::assert_snapshot!(String::from_utf8(written.clone()).unwrap());
    assert_eq!(plan_json::read(&written).unwrap(), file);
    assert_eq!(plan_json::read(&compress(&written)).unwrap(), file);
    assert_eq!(file.header.limits().banks.len(), 2);
}

#[test]
fn the_plan_of_a_graph_comes_back_the_same() {
    let graph = small_graph();
    let mut file = small_plan();
    file.plan.program = Program::eager(&graph);
    file.plan.layout.places = vec![Place::default(); file.plan.program.buffers.len()];
    let written = plan_json::write(&file);
    let back = plan_json::read(&written).unwrap();
    assert_eq!(back, file);
    assert_eq!(plan_json::write(&back), written);
}

#[test]
fn a_buffer_without_a_place_is_written_where_no_judge_accepts_it() {
    let mut file = small_plan();
    file.plan.layout.places.pop();
    let back = plan_json::read(&plan_json::write(&file)).unwrap();
    assert_eq!(back.plan.layout.places[3], Place { bank: 0, offset: Bytes::MAX });
}

#[test]
fn damage_is_refused_without_a_panic() {
    let good = plan_json::write(&small_plan());
    survives_every_flip_and_cut(&good, plan_json::read);
    survives_every_flip_and_cut(&compress(&good), plan_json::read);
    survives_random_damage(&good, 2, plan_json::read);
}

#[test]
fn a_damaged_compressed_file_is_always_noticed() {
    let good = compress(&plan_json::write(&small_plan()));
    for at in 0..good.len() {
        for flip in [0x01, 0x20, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            // Some flips leave the content as it was: bits of the frame header that carry nothing.
            assert!(
                plan_json::read(&bytes).is_ok_and(|file| file == small_plan())
                    || plan_json::read(&bytes).is_err()
            );
        }
    }
}

#[test]
fn one_kind_of_file_is_not_taken_for_another() {
    let graph = graph_json::write(&small_graph());
    let plan = plan_json::write(&small_plan());
    assert_eq!(
        plan_json::read(&graph).unwrap_err().to_string(),
        "schema: `memfit-graph/1` is not `memfit-plan/1`, which is what this reader knows"
    );
    assert_eq!(
        graph_json::read(&plan).unwrap_err().to_string(),
        "schema: `memfit-plan/1` is not `memfit-graph/1`, which is what this reader knows"
    );
}

#[test]
fn the_documented_example_is_a_plan_for_the_documented_graph() {
    fn example(page: &str) -> &[u8] {
        let start = page.find("```json").unwrap() + 7;
        &page.as_bytes()[start..start + page[start..].find("```").unwrap()]
    }
    let graph = graph_json::read(example(include_str!("../../../docs/graph-json.md"))).unwrap();
    let file = plan_json::read(example(include_str!("../../../docs/plan-json.md"))).unwrap();
    assert_eq!(file.plan.graph.to_string(), graph.digest().to_string());
    assert_eq!(file.plan.program.steps.len(), 3);
    assert_eq!(file.plan.layout.height(&file.plan.program, 0), file.header.peak);
}
