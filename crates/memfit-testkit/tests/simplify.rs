//! Simplified graphs: the verifier's companion accepts them, real bytes are equal, and no peak is higher.

use memfit_ir::text::parse;
use memfit_ir::{Graph, GraphBuilder, InPlace, OpId, Reuse, Rewrite, ValueId, Why};
use memfit_plan::order;
use memfit_plan::simplify::{CASTS, Change, VIEWS, apply, lossless, simplify};
use memfit_testkit::bytes::evaluate;
use memfit_testkit::{Rng, cases, device, graph, twins};
use memfit_verify::Rule;
use memfit_verify::rewrite::check;

fn graph_of(text: &str) -> Graph {
    parse(text).ok().and_then(|document| document.graph).expect("a graph")
}

fn peaks(graph: &Graph) -> [u64; 2] {
    let order: Vec<OpId> = graph.op_ids().collect();
    [InPlace::Must, InPlace::May].map(|in_place| order::peak(graph, &order, device().align, in_place).0)
}

/// Whether every value of the new graph has the bytes of what it stands for, in two steps.
fn same_bytes(graph: &Graph, rewrite: &Rewrite) -> bool {
    let values: Vec<ValueId> = graph.value_ids().collect();
    let ops: Vec<OpId> = graph.op_ids().collect();
    let old = evaluate(graph, &values, &ops);
    let new = evaluate(&rewrite.graph, &rewrite.values, &rewrite.ops);
    old.iter().zip(&new).all(|(old, new)| new.iter().all(|(value, bytes)| old[value] == *bytes))
}

fn holds(graph: &Graph, rewrite: &Rewrite, seed: u64) {
    if let Err(rejected) = check(graph, rewrite) {
        panic!("seed {seed}: {rejected}");
    }
    assert!(same_bytes(graph, rewrite), "seed {seed}: bytes differ");
    let ([must, may], [new_must, new_may]) = (peaks(graph), peaks(&rewrite.graph));
    assert!(new_must <= must && new_may <= may, "seed {seed}: the peak rises");
    assert!(rewrite.graph.op_count() + rewrite.removed.len() == graph.op_count(), "seed {seed}");
}

#[test]
fn random_graphs_compute_the_same_in_no_more_bytes() {
    let (mut removed, mut replaced) = ([0; 4], 0);
    for seed in 0..cases(10_000) {
        let graph = twins(seed);
        let made = simplify(&graph, &device(), usize::MAX);
        holds(&graph, &made.rewrite, seed);
        for (_, why) in &made.rewrite.removed {
            removed[*why as usize] += 1;
        }
        replaced += made.rewrite.replaced.len();
    }
    assert!(removed.iter().all(|&count| count > 100) && replaced > 1000, "{removed:?} {replaced}");
}

/// Without attributes nothing is merged, and what has an effect stays.
#[test]
fn what_nobody_describes_is_only_removed_when_dead() {
    for seed in 0..cases(2_000) {
        let graph = graph(seed);
        let made = simplify(&graph, &device(), usize::MAX);
        holds(&graph, &made.rewrite, seed);
        assert!(made.rewrite.removed.iter().all(|(_, why)| *why == Why::Dead), "seed {seed}");
        assert!(made.rewrite.replaced.is_empty(), "seed {seed}");
    }
}

/// Changes at random: whatever the companion accepts has the right bytes.
#[test]
fn what_the_companion_accepts_has_the_right_bytes() {
    let (mut accepted, mut wrong) = (0, 0);
    for seed in 0..cases(10_000) {
        let mut rng = Rng::new(seed);
        let graph = twins(seed);
        let mut changes = Vec::new();
        for _ in 0..=rng.below(2) {
            let values: Vec<ValueId> = graph.value_ids().collect();
            let (Some(value), Some(by)) = (rng.pick(&values), rng.pick(&values)) else { continue };
            let op = graph.value(value).producer;
            changes.push(match (rng.below(6), op) {
                (0, Some(op)) => Change::Remove(op),
                (1, _) => Change::Forget(value),
                (2, Some(op)) => Change::InPlace { op, input: by, output: value },
                _ if graph.value(value).size == graph.value(by).size => {
                    Change::Read { value, by, why: Why::Common }
                }
                _ => continue,
            });
        }
        let Ok(rewrite) = apply(&graph, &changes) else { continue };
        let right = same_bytes(&graph, &rewrite) && rewrite.graph.results().len() == graph.results().len();
        match check(&graph, &rewrite) {
            Ok(()) => {
                assert!(right, "seed {seed}: {changes:?}");
                accepted += 1;
            }
            Err(_) => wrong += 1,
        }
    }
    assert!(accepted > 50 && wrong > 500, "{accepted} accepted, {wrong} refused");
}

/// Each way in which a rewrite can lie, and the rule that it breaks.
#[test]
fn lies_are_refused_by_their_rule() {
    let text = r#"graph "lies"
  v0 = input 16 "x" u8[16]
  v1 = parameter 16 "w"
  v2 = activation 16 "a"
  op0 = forward f(v0, v1) -> v2 "f" attributes="k=1" may=v0>v2
  v3 = activation 16 "b"
  op1 = forward f(v0, v1) -> v3 "g" attributes="k=2"
  v4 = activation 16 "r"
  op2 = forward rand() -> v4 "rand" seeded
  v5 = output 16 "y"
  op3 = forward h(v2, v3) -> v5 "h" may=v2>v5
  v6 = parameter 16 "w'"
  op4 = update u(v1, v3) -> v6 "u" must=v1>v6
  result v5
"#
    .replace(" u8[16]", "");
    let graph = graph_of(&text);
    let nothing = || Rewrite::nothing(&graph);
    assert!(check(&graph, &nothing()).is_ok());
    let broken = |rewrite: Rewrite| check(&graph, &rewrite).unwrap_err().violations[0].rule;
    let read = |value, by| Change::Read { value: ValueId(value), by: ValueId(by), why: Why::Common };
    assert_eq!(broken(apply(&graph, &[read(3, 2)]).unwrap()), Rule::Value);
    assert_eq!(broken(apply(&graph, &[Change::Remove(OpId(2))]).unwrap()), Rule::Effect);
    let pair = Change::InPlace { op: OpId(1), input: ValueId(0), output: ValueId(3) };
    assert_eq!(broken(apply(&graph, &[pair]).unwrap()), Rule::InPlace);
    let mut twice = nothing();
    twice.values[2] = ValueId(1);
    assert_eq!(broken(twice), Rule::Graph);
    let mut lost = nothing();
    lost.removed.push((OpId(0), Why::Dead));
    assert_eq!(broken(lost), Rule::Graph);
    let other = |from: &str, to: &str| graph_of(&text.replacen(from, to, 1));
    for (from, to, rule) in [
        ("attributes=\"k=2\"", "attributes=\"k=1\"", Rule::Structure),
        ("attributes=\"k=2\"", "", Rule::Structure),
        ("rand() -> v4 \"rand\" seeded", "rand() -> v4 \"rand\"", Rule::Structure),
        (" must=v1>v6", "", Rule::InPlace),
        ("op1 = forward f(v0, v1)", "op1 = forward f(v1, v0)", Rule::Value),
        ("op3 = forward h(v2, v3)", "op3 = forward h(v2, v2)", Rule::Value),
        ("result v5", "result v5 v3", Rule::Result),
        ("input 16 \"x\"", "parameter 16 \"x\"", Rule::Structure),
        ("activation 16 \"a\"", "activation 16 \"a\" density=0.5", Rule::Structure),
    ] {
        let rewrite = Rewrite { graph: other(from, to), ..nothing() };
        let rejected = check(&graph, &rewrite).unwrap_err();
        assert!(
            rejected.violations.iter().any(|violation| violation.rule == rule),
            "{from} → {to}: {rejected}"
        );
    }
}

/// One operand that stands in for two may be overwritten only where each of the two might have been.
#[test]
fn a_merged_operand_is_overwritten_only_where_both_might_be() {
    let text = |pairs: &str| {
        format!(
            r#"graph "pairs"
  v0 = input 16 "x"
  v1 = activation 16 "a"
  op0 = forward f(v0) -> v1 "f" attributes="k=1"
  v2 = activation 16 "b"
  op1 = forward f(v0) -> v2 "g" attributes="k=1"
  v3 = output 16 "y"
  op2 = forward matmul(v1, v2) -> v3 "h" {pairs}
  result v3
"#
        )
    };
    let pairs = |pairs: &str| {
        let graph = graph_of(&text(pairs));
        let made = simplify(&graph, &device(), usize::MAX).rewrite;
        assert!(check(&graph, &made).is_ok());
        let op = made.graph.op(OpId(1));
        (op.reads.to_vec(), op.reuses.to_vec())
    };
    let (one, out) = (ValueId(1), ValueId(2));
    assert_eq!(pairs("may=v1>v3"), (vec![one, one], vec![]));
    let both = Reuse { input: one, output: out, must: false };
    assert_eq!(pairs("may=v1>v3 may=v2>v3"), (vec![one, one], vec![both]));
    // Who says that it may all the same is refused.
    let graph = graph_of(&text("may=v1>v3"));
    let good = simplify(&graph, &device(), usize::MAX).rewrite;
    let mut b = GraphBuilder::new("pairs");
    for id in good.graph.value_ids() {
        b.value(good.graph.value(id).to_spec()).unwrap();
    }
    for id in good.graph.op_ids() {
        let mut spec = good.graph.op(id).to_spec();
        if id == OpId(1) {
            spec.reuses.push(both);
        }
        b.op(spec).unwrap();
    }
    b.result(out).unwrap();
    let lie = Rewrite { graph: b.finish().unwrap(), ..good };
    assert_eq!(check(&graph, &lie).unwrap_err().violations[0].rule, Rule::InPlace);
}

/// A line of an op of `kind` with these attributes, and whether its output is its operand.
fn is_identity(kind: &str, attributes: &str, sizes: (u64, u64)) -> bool {
    let text = format!(
        r#"graph "one"
  v0 = input {} "x"
  v1 = activation {} "a"
  op0 = forward "{kind}"(v0) -> v1 "f" attributes="{attributes}"
  v2 = output 16 "y"
  op1 = forward h(v1) -> v2 "h"
  result v2
"#,
        sizes.0, sizes.1
    );
    let graph = graph_of(&text);
    let made = simplify(&graph, &device(), usize::MAX).rewrite;
    assert!(check(&graph, &made).is_ok(), "{kind} {attributes}");
    assert!(same_bytes(&graph, &made), "{kind} {attributes}");
    let honest = made.graph.op_count() == 1;
    // The companion's table says the same.
    let read = Change::Read { value: ValueId(1), by: ValueId(0), why: Why::Identity };
    let forced = apply(&graph, &[read]).expect("a graph");
    assert_eq!(check(&graph, &forced).is_ok(), honest, "{kind} {attributes}: the tables differ");
    honest
}

#[test]
fn identities_hold_where_every_bit_stays() {
    let f = |argument: &str| format!("0=$0:float[4];1={argument};out0=float[4]");
    let i = |argument: &str| format!("0=$0:int32[4];1={argument};out0=int32[4]");
    let yes = [
        ("Mul", f("1")),
        ("Mul", f("1.0")),
        ("Div", f("1")),
        ("Sub", f("0")),
        ("Add", f("-0.0")),
        ("Add", i("0")),
        ("Add", "0=$0:float[4];1=$1:float[]=-0;out0=float[4]".to_owned()),
        ("aten.mul.Tensor", f("1.0")),
        ("Identity", "0=$0:float[4];out0=float[4]".to_owned()),
        ("Cast", "0=$0:float[4];out0=float[4]".to_owned()),
        ("Reshape", "0=$0:float[2,2];out0=float[4]".to_owned()),
        ("aten.clone.default", "0=$0:float32[2,2]{2,1}+0;out0=float32[2,2]{2,1}+0".to_owned()),
    ];
    let no = [
        ("Add", f("0")),
        ("Add", f("0.0")),
        ("Sub", f("-0.0")),
        ("Mul", f("-1")),
        ("Mul", f("nan")),
        ("Sub", "0=1;1=$0:float[4];out0=float[4]".to_owned()),
        ("Div", "0=1;1=$0:float[4];out0=float[4]".to_owned()),
        ("Mul", "0=$0:float[4];1=1;out0=float[4,1]".to_owned()),
        ("Mul", "0=$0:complex64[4];1=1;out0=complex64[4]".to_owned()),
        ("aten.add.Tensor", "0=$0:float32[4];1=-0.0;alpha=-1;out0=float32[4]".to_owned()),
        ("aten.sub.Tensor", "0=$0:float32[4];1=0;alpha=-1;out0=float32[4]".to_owned()),
        ("aten.clone.default", "0=$0:float32[2,2]{1,2}+0;out0=float32[2,2]{2,1}+0".to_owned()),
        ("Reshape", "0=$0:float[4];out0=int32[4]".to_owned()),
        ("Reshape", "k=1".to_owned()),
        ("Mul", "0=$9:float[4];1=1;out0=float[4]".to_owned()),
        ("Mul", "blake3:00".to_owned()),
        ("aten.view.default", "0=$0:float[4];out0=float[4]".to_owned()),
    ];
    for (kind, attributes) in yes {
        assert!(is_identity(kind, &attributes, (16, 16)), "{kind} {attributes}");
        assert!(!is_identity(kind, &attributes, (32, 16)), "{kind} {attributes} of part of a storage");
    }
    for (kind, attributes) in no {
        assert!(!is_identity(kind, &attributes, (16, 16)), "{kind} {attributes}");
    }
}

/// Two ops one after another, and how many of the three ops are left.
fn chain(kind: &str, attributes: [&str; 2], sizes: [u64; 3]) -> usize {
    let text = format!(
        r#"graph "two"
  v0 = input {} "x"
  v1 = activation {} "a"
  op0 = forward "{kind}"(v0) -> v1 "f" attributes="{}"
  v2 = activation {} "b"
  op1 = forward "{kind}"(v1) -> v2 "g" attributes="{}"
  v3 = output 4 "y"
  op2 = forward h(v2) -> v3 "h"
  result v3
"#,
        sizes[0], sizes[1], attributes[0], sizes[2], attributes[1]
    );
    let graph = graph_of(&text);
    let made = simplify(&graph, &device(), usize::MAX).rewrite;
    assert!(check(&graph, &made).is_ok(), "{kind} {attributes:?}");
    // The interpreter knows no halves.
    let halves = attributes.iter().any(|text| text.contains("float16"));
    assert!(halves || same_bytes(&graph, &made), "{kind} {attributes:?}");
    let left = made.graph.op_count();
    if sizes[0] == sizes[2] {
        let read = Change::Read { value: ValueId(2), by: ValueId(0), why: Why::Identity };
        let forced = apply(&graph, &[read]).expect("a graph");
        assert_eq!(check(&graph, &forced).is_ok(), left == 1, "{kind} {attributes:?}: the tables differ");
    }
    left
}

#[test]
fn transposes_end_where_they_began_or_stay() {
    let turn = |from: &str, perm: &str, to: &str| format!("0=$0:float{from};perm={perm};out0=float{to}");
    let left = |a: String, b: String| chain("Transpose", [&a, &b], [96; 3]);
    assert_eq!(left(turn("[2,3,4]", "2,0,1", "[4,2,3]"), turn("[4,2,3]", "1,2,0", "[2,3,4]")), 1);
    assert_eq!(left(turn("[2,3,4]", "0,2,1", "[2,4,3]"), turn("[2,4,3]", "0,2,1", "[2,3,4]")), 1);
    // Not the inverse, seen in another shape between, and not a permutation.
    assert_eq!(left(turn("[2,3,4]", "2,0,1", "[4,2,3]"), turn("[4,2,3]", "2,0,1", "[3,4,2]")), 3);
    assert_eq!(left(turn("[2,3,4]", "2,0,1", "[4,2,3]"), turn("[2,4,3]", "1,2,0", "[4,3,2]")), 3);
    assert_eq!(left(turn("[2,3,4]", "2,0,1", "[4,2,3]"), turn("[4,2,3]", "1,2", "[2,3,4]")), 3);
    assert_eq!(left(turn("[2,3,4]", "9,0,1", "[4,2,3]"), turn("[4,2,3]", "1,2,9", "[2,3,4]")), 3);
}

#[test]
fn casts_come_back_where_nothing_was_lost() {
    let bytes = |elem: &str| match elem.trim_start_matches(char::is_alphabetic) {
        "" if elem == "double" => 8,
        "" => 4,
        bits => bits.parse::<u64>().unwrap() / 8,
    };
    let elems = [
        "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
        "float", "double", "float32", "float64",
    ];
    let mut exact = 0;
    for kind in CASTS {
        for (from, to) in elems.iter().flat_map(|from| elems.map(|to| (*from, to))) {
            let (there, back) =
                (format!("0=$0:{from}[6];out0={to}[6]"), format!("0=$0:{to}[6];out0={from}[6]"));
            let sizes = [from, to, from].map(|elem| 6 * bytes(elem));
            let left = chain(kind, [&there, &back], sizes);
            assert_eq!(left == 1, lossless(from, to) || from == to, "{from} → {to} → {from}");
            exact += usize::from(lossless(from, to));
        }
    }
    assert!(exact > 60 && !VIEWS.contains(&"Cast"));
}
