//! `memfit-graph/1`: what is written reads back the same, what is wrong is refused by name.

mod common;

use common::{small_graph, survives_every_flip_and_cut, survives_random_damage};
use memfit_formats::{compress, graph_json};
use memfit_ir::{Bytes, GraphBuilder, OpSpec, Reuse, Role, ValueSpec};

#[test]
fn a_graph_comes_back_the_same() {
    let graph = small_graph();
    let written = graph_json::write(&graph);
    insta::assert_snapshot!(String::from_utf8(written.clone()).unwrap());
    for bytes in [written.clone(), compress(&written)] {
        let back = graph_json::read(&bytes).unwrap();
        assert_eq!(back.digest(), graph.digest());
        assert_eq!(graph_json::write(&back), written);
        assert_eq!(format!("{back:?}"), format!("{graph:?}"));
    }
}

#[test]
fn demanded_pairs_come_before_permitted_ones_on_both_sides() {
    let mut b = GraphBuilder::new("pairs");
    let mut value = |role| b.value(ValueSpec { size: Bytes(8), role, ..ValueSpec::default() }).unwrap();
    let (x, w) = (value(Role::Input), value(Role::State));
    let (y, z) = (value(Role::Output), value(Role::State));
    let reuses = vec![Reuse { input: x, output: y, must: false }, Reuse { input: w, output: z, must: true }];
    b.op(OpSpec { reads: vec![x, w], writes: vec![y, z], reuses, ..OpSpec::default() }).unwrap();
    let graph = b.finish().unwrap();
    let back = graph_json::read(&graph_json::write(&graph)).unwrap();
    assert_eq!(back.digest(), graph.digest());
}

/// Attributes come back as they are, and no plan depends on them.
#[test]
fn attributes_come_back_the_same() {
    let graph = |attributes: Option<&str>| {
        let mut b = GraphBuilder::new("attributes");
        let value = b.value(ValueSpec { size: Bytes(8), role: Role::Input, ..ValueSpec::default() }).unwrap();
        let attributes = attributes.map(str::to_owned);
        b.op(OpSpec { reads: vec![value], attributes, ..OpSpec::default() }).unwrap();
        b.finish().unwrap()
    };
    for attributes in [None, Some(""), Some("0=$0:float[2,3];perm=1,0"), Some("\"\\é\u{7}\n")] {
        let back = graph_json::read(&graph_json::write(&graph(attributes))).unwrap();
        assert_eq!(back.op(memfit_ir::OpId(0)).attributes, attributes);
        assert_eq!(back.digest(), graph(None).digest());
    }
    let long = graph_json::write(&graph(Some(&"a".repeat((1 << 20) + 1))));
    let error = graph_json::read(&long).unwrap_err().to_string();
    assert!(error.contains("`attributes` is longer than 1048576 bytes"), "{error}");
}

#[test]
fn the_documented_example_reads() {
    let page = include_str!("../../../docs/graph-json.md");
    let start = page.find("```json").unwrap() + 7;
    let example = &page[start..start + page[start..].find("```").unwrap()];
    let graph = graph_json::read(example.as_bytes()).unwrap();
    assert_eq!((graph.op_count(), graph.value_count(), graph.results().len()), (2, 4, 2));
}

#[test]
fn what_is_left_out_has_its_default() {
    let text = r#"{"schema": "memfit-graph/1", "name": "", "values": [{"bytes": 5, "role": "input"}, {"bytes": 7}],
        "results": [], "ops": [{"kind": "k", "reads": [0, 0], "writes": [1]}]}"#;
    let graph = graph_json::read(text.as_bytes()).unwrap();
    let op = graph.op(memfit_ir::OpId(0));
    assert_eq!((op.moved, op.workspace, op.time, op.name), (Bytes(17), Bytes(0), None, ""));
}

#[test]
fn what_is_too_much_is_refused_in_few_words() {
    let file = |name: &str, reads: &str, key: &str| {
        let text = format!(
            r#"{{"schema": "memfit-graph/1", "name": "", "values": [{{"bytes": 1, "role": "input"}}], "results": [],
                "ops": [{{"name": "{name}", "kind": "", "reads": [{reads}], "writes": []{key}}}]}}"#
        );
        graph_json::read(text.as_bytes()).map_err(|error| error.to_string())
    };
    assert!(file("fused", &["0"; 1 << 14].join(","), "").is_ok());
    let many = file("fused", &["0"; (1 << 14) + 1].join(","), "").unwrap_err();
    assert_eq!(many, "ops[0]: op `fused`: `reads` has 16385 elements, more than 16384");
    assert!(file(&"n".repeat(1 << 20), "", "").is_ok());
    let long = file(&"n".repeat((1 << 20) + 1), "", "").unwrap_err();
    assert!(long.ends_with("`name` is longer than 1048576 bytes") && long.len() < 200, "{long}");
    for (reads, key) in [("1", String::new()), ("0", format!(r#", "{}": 1"#, "k".repeat(1 << 20)))] {
        let quoted = file(&"é".repeat(1 << 19), reads, &key).unwrap_err();
        assert!(quoted.len() < 3000, "{} bytes", quoted.len());
    }
}

#[test]
fn damage_is_refused_without_a_panic() {
    let good = graph_json::write(&small_graph());
    survives_every_flip_and_cut(&good, graph_json::read);
    survives_every_flip_and_cut(&compress(&good), graph_json::read);
    survives_random_damage(&good, 1, graph_json::read);
}

#[test]
fn a_hundred_thousand_ops_read_in_moments() {
    let count = 100_000;
    let mut b = GraphBuilder::new("chain");
    let mut last = b.value(ValueSpec { role: Role::Input, size: Bytes(4), ..ValueSpec::default() }).unwrap();
    for at in 0..count {
        let name = format!("layer{at}.mm");
        let size = Bytes(4096 + at % 100);
        let next = b.value(ValueSpec { name: name.clone(), size, ..ValueSpec::default() }).unwrap();
        let module = format!("layer{at}");
        let (reads, writes) = (vec![last], vec![next]);
        let kind = "aten.mm.default".to_owned();
        b.op(OpSpec { name, kind, module, flops: 1e9, reads, writes, ..OpSpec::default() }).unwrap();
        last = next;
    }
    let graph = b.finish().unwrap();
    let written = graph_json::write(&graph);
    let start = std::time::Instant::now();
    let back = graph_json::read(&written).unwrap();
    let took = start.elapsed();
    println!("{} bytes, {took:?}", written.len());
    assert_eq!(back.digest(), graph.digest());
    assert!(took.as_secs() < 5, "{took:?}");
}
