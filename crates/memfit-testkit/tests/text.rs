//! The text form reads back what it has written, and never panics.

use memfit_ir::{Bytes, Graph, GraphBuilder, OpSpec, Role, ValueSpec, text};
use memfit_testkit::{Rng, case, mutant};

/// All of a graph that its digest leaves out.
fn names(graph: &Graph) -> Vec<String> {
    let ops = graph.op_ids().map(|id| format!("{:?}", graph.op(id)));
    ops.chain(graph.value_ids().map(|id| format!("{:?}", graph.value(id)))).collect()
}

#[test]
fn good_and_spoilt_plans_survive_printing() {
    for seed in 0..1000 {
        let good = case(seed);
        let mut rng = Rng::new(seed);
        let spoilt = (0..3).filter_map(|_| mutant(&good, &mut rng)).map(|(_, case)| case);
        for case in [good.clone()].into_iter().chain(spoilt) {
            let printed = case.replay();
            let document = text::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(document.plan.as_ref(), Some(&case.plan), "{printed}");
            assert_eq!(document.limits.as_ref(), Some(&case.limits), "{printed}");
            let graph = document.graph.as_ref().unwrap();
            assert_eq!(graph.digest(), case.graph.digest(), "{printed}");
            assert_eq!(names(graph), names(&case.graph), "{printed}");
            assert_eq!(document.to_string(), printed);
        }
    }
}

#[test]
fn the_example_of_the_documentation_is_a_good_plan() {
    let documentation = include_str!("../../../docs/text-form.md");
    let example = documentation.split("```").nth(1).unwrap();
    let document = text::parse(example).unwrap();
    let (limits, graph) = (document.limits.unwrap(), document.graph.unwrap());
    assert_eq!(memfit_verify::verify(&graph, &limits, document.plan.unwrap()).unwrap().peak(), Bytes(32));
}

#[test]
fn a_plan_alone_carries_its_digest() {
    let case = case(3);
    let alone = text::print(None, None, Some(&case.plan));
    assert!(alone.starts_with("plan blake3:"), "{alone}");
    assert_eq!(text::parse(alone).unwrap().plan, Some(case.plan));
}

#[test]
fn one_step_is_printed_with_all_it_speaks_of() {
    let source = "plan\n  resident b0[v0 +16 @0]\n  compute op0(b0) -> b1[v1 +16 @1:16 over b0]\n  free b1\n";
    let plan = text::parse(source).unwrap().plan.unwrap();
    assert_eq!(text::step(&plan, 0), "compute op0(b0[v0 +16 @0]) -> b1[v1 +16 @1:16 over b0]");
    assert_eq!(text::step(&plan, 2), "");
}

#[test]
fn strange_names_and_numbers_survive_printing() {
    let mut builder = GraphBuilder::new("a \"b\" \\ \n\r\t; \u{7} é\u{0}");
    let strange = ValueSpec {
        name: "; not a comment".into(),
        size: Bytes(1 << 61),
        shape: vec![0, u64::MAX],
        role: Role::Input,
        density: Some(0.1),
        sensitivity: Some(2.5),
        ..ValueSpec::default()
    };
    let value = builder.value(strange).unwrap();
    let spec = OpSpec {
        kind: "aten::add (in place)".into(),
        attributes: Some("0=$0:float[2];\"é\"\n; %3B".into()),
        module: "layers.0".into(),
        flops: 1.7e308,
        reads: vec![value],
        ..OpSpec::default()
    };
    builder.op(spec).unwrap();
    builder.op(OpSpec { flops: 5e-324, ..OpSpec::default() }).unwrap();
    builder.op(OpSpec { flops: -0.0, ..OpSpec::default() }).unwrap();
    let graph = builder.finish().unwrap();
    let printed = text::print(None, Some(&graph), None);
    let read = text::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}")).graph.unwrap();
    assert_eq!(read.digest(), graph.digest(), "{printed}");
    assert_eq!(read.name(), graph.name());
    assert_eq!(names(&read), names(&graph), "{printed}");
}

#[test]
fn damaged_texts_are_errors_and_not_panics() {
    let mut rng = Rng::new(7);
    let mut refused = 0;
    for seed in 0..400 {
        let mut bytes = case(seed).replay().into_bytes();
        for _ in 0..10 {
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len());
                let other = bytes[rng.below(bytes.len())];
                match rng.below(4) {
                    0 => bytes[at] = rng.bits().to_le_bytes()[0],
                    1 => bytes[at] = other,
                    2 => drop(bytes.drain(at..(at + 4).min(bytes.len()))),
                    _ => bytes.insert(at, other),
                }
            }
            match text::parse(&bytes) {
                Ok(document) => drop(document.to_string()),
                Err(error) => {
                    assert!(error.line > 0 && error.column > 0, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 3000, "{refused}");
}

#[test]
fn errors_name_the_place_and_what_is_expected() {
    for (source, error) in [
        ("grap", "1:1: expected `limits`, `graph` or `plan`, found `grap`"),
        ("limits\n", "1:1: `limits` names no `bank`"),
        ("limits\n  bank x", "2:8: expected a number of bytes, found `x`"),
        ("limits\n  bank 5 align=0", "2:17: an alignment of 0"),
        ("graph \"x", "1:9: expected `\"`, found the end of the line"),
        ("graph\n  v1 = input 4", "2:3: expected `v0`, `op0` or `result`, found `v1`"),
        ("graph\n  v0 = inputs 4", "2:8: expected a role, found `inputs`"),
        ("graph\n  v0 = input 4\n  op0 = forward f(v0, w)", "3:23: expected a value such as `v0`, found `w`"),
        ("graph\n  op0 = f(v0)", "2:1: op ``: v0 is not a value of this graph"),
        ("plan\n  s1: free b0", "2:3: expected `s0`, which this step is, found `s1`"),
        ("plan\n  free b0 b1", "2:11: expected the end of the line, found `b1`"),
        ("plan\n  free b1[work +4]\n", "2:1: `b1` is described in brackets, but `b0` is not"),
        ("plan\n  free b0\n  resident b0", "3:12: `resident` after the first step"),
        ("plan\nplan", "2:1: a second section `plan`"),
        ("plan \u{e9}", "1:6: expected the end of the line, found `\\u{e9}`"),
    ] {
        assert_eq!(text::parse(source).unwrap_err().to_string(), error, "{source}");
    }
    assert_eq!(text::parse(b"plan\n ;\xff").unwrap_err().to_string(), "2:3: not UTF-8");
}
