//! TensorFlow Lite models: small ones by hand, every offset of them spoilt, and offsets put into them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;
#[path = "common/flatbuffer.rs"]
mod flatbuffer;

use common::{survives_every_flip_and_cut, survives_random_damage};
use flatbuffer::{Field, Model, tensor};
use memfit_formats::tflite::{METADATA, TfliteOptions, buffers, is_like, offsets_in, read, with_offsets};
use memfit_ir::{Bytes, Effect, Graph, OpId, Role, ValueId};

const F32: u8 = 0;
const INT8: u8 = 9;
const RESOURCE: u8 = 13;
const STRING: u8 = 5;

const ADD: i32 = 0;
const CONV_2D: i32 = 3;
const RELU: i32 = 19;
const RESHAPE: i32 = 22;
const SVDF: i32 = 27;
const CUSTOM: i32 = 32;
const WHILE: i32 = 119;
const VAR_HANDLE: i32 = 142;
const READ_VARIABLE: i32 = 143;
const ASSIGN_VARIABLE: i32 = 144;

/// `x → CONV_2D (with weights) → c → RELU → r → RESHAPE → f`, `f + f → y`.
fn small() -> Model {
    Model {
        codes: vec![CONV_2D, RELU, RESHAPE, ADD],
        tensors: vec![
            tensor("x", INT8, &[1, 8, 8, 1], 0),
            tensor("w", INT8, &[4, 1, 1, 1], 1),
            tensor("c", INT8, &[1, 8, 8, 4], 0),
            tensor("r", INT8, &[1, 8, 8, 4], 0),
            tensor("f", INT8, &[1, 256], 0),
            tensor("y", INT8, &[1, 256], 0),
        ],
        ops: vec![
            (0, vec![0, 1, -1], vec![2]),
            (1, vec![2], vec![3]),
            (2, vec![3], vec![4]),
            (3, vec![4, 4], vec![5]),
        ],
        inputs: vec![0],
        outputs: vec![5],
        metadata: vec![("min_runtime_version".into(), vec![7, 8])],
        subgraphs: 1,
    }
}

fn graph(model: &Model) -> Graph {
    read(&model.bytes(), &TfliteOptions::default()).unwrap().graph
}

fn refused(model: &Model) -> String {
    let error = read(&model.bytes(), &TfliteOptions::default()).unwrap_err();
    format!("{error} | {}", error.hint.clone().unwrap_or_default())
}

#[test]
fn weights_stay_in_the_file_and_views_are_no_values() {
    let bytes = small().bytes();
    assert!(is_like(&bytes));
    let model = read(&bytes, &TfliteOptions::default()).unwrap();
    let names: Vec<&str> =
        (0..model.graph.value_count()).map(|at| model.graph.value(ValueId::at(at)).name).collect();
    assert_eq!(names, ["x", "c", "r", "y"]);
    let id = |at: usize| Some(ValueId::at(at));
    assert_eq!(model.tensors, [id(0), None, id(1), id(2), id(2), id(3)]);
    let kinds: Vec<&str> = (0..model.graph.op_count()).map(|at| model.graph.op(OpId::at(at)).kind).collect();
    assert_eq!(kinds, ["CONV_2D", "RELU", "ADD"]);
    let conv = model.graph.op(OpId::at(0));
    assert!(
        (conv.flops - 2.0 * 256.0).abs() < 1e-9
            && conv.reuses.is_empty()
            && conv.moved == Bytes(64 + 4 + 256)
    );
    assert_eq!(model.graph.op(OpId::at(1)).reuses.len(), 1);
    assert_eq!(model.graph.value(ValueId::at(0)).role, Role::Input);
    assert_eq!(model.graph.value(ValueId::at(3)).role, Role::Output);
}

/// What its own runtime would be handed: nothing shared.
#[test]
fn buffers_are_those_of_the_runtime_for_microcontrollers() {
    let rows = buffers(&small().bytes(), &TfliteOptions::default()).unwrap();
    let lives: Vec<(&str, u64, u64, u64)> =
        rows.iter().map(|row| (row.id.as_str(), row.lower, row.upper, row.size.0)).collect();
    let expected =
        [("0:x", 0, 2, 64), ("2:c", 1, 3, 256), ("3:r", 2, 4, 256), ("4:f", 3, 5, 256), ("5:y", 4, 5, 256)];
    assert_eq!(lives, expected);
}

/// A filter with a variable, and a resource that is read and assigned.
fn stateful() -> Model {
    let mut state = tensor("s", F32, &[1, 4], 0);
    state.push((5, Field::Byte(1)));
    Model {
        codes: vec![SVDF, VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE],
        tensors: vec![
            tensor("x", F32, &[1, 4], 0),
            state,
            tensor("y", F32, &[1, 4], 0),
            tensor("handle", RESOURCE, &[1], 0),
            tensor("old", F32, &[1, 4], 0),
        ],
        ops: vec![
            (0, vec![0, 1], vec![2]),
            (1, vec![], vec![3]),
            (2, vec![3], vec![4]),
            (3, vec![3, 2], vec![]),
        ],
        outputs: vec![2, 4],
        ..small()
    }
}

#[test]
fn variables_have_versions_and_resources_an_order() {
    let model = stateful();
    let read = read(&model.bytes(), &TfliteOptions::default()).unwrap();
    let graph = &read.graph;
    let svdf = graph.op(OpId::at(0));
    let mutated = svdf.reuses.iter().find(|pair| pair.must).unwrap();
    assert_eq!(
        (graph.value(mutated.input).role, graph.value(mutated.output).role),
        (Role::State, Role::State)
    );
    assert_eq!(read.tensors[1], Some(mutated.input));
    assert_eq!(read.tensors[3], None);
    let kinds: Vec<(&str, Effect)> = (1..graph.op_count())
        .map(|at| (graph.op(OpId::at(at)).kind, graph.op(OpId::at(at)).effect))
        .collect();
    assert_eq!(kinds, [("READ_VARIABLE", Effect::Once), ("ASSIGN_VARIABLE", Effect::Once)]);
}

/// An input may give its bytes where it is read element by element in the output's order, and only there.
#[test]
fn in_place_is_for_inputs_of_the_same_shape() {
    let with = |shape: &[i32]| {
        let mut model = small();
        model.tensors.push(tensor("b", INT8, shape, 0));
        model.inputs.push(6);
        model.ops[3] = (3, vec![6, 4], vec![5]);
        let graph = graph(&model);
        let pairs = graph.op(OpId::at(2)).reuses.iter().map(|pair| graph.value(pair.input).name.to_owned());
        pairs.collect::<Vec<_>>()
    };
    assert_eq!(with(&[1, 256]), ["b", "r"]);
    assert_eq!(with(&[256]), ["r"], "another shape");
    assert_eq!(with(&[1]), ["r"], "broadcast");
    // The same bytes under two shapes in one op: they may be read in two orders.
    let mut twice = small();
    twice.ops[3] = (3, vec![4, 3], vec![5]);
    assert!(graph(&twice).op(OpId::at(2)).reuses.is_empty());
}

/// With a batch of any size.
fn open() -> Model {
    let mut model = small();
    for index in [0, 2, 3] {
        let shape = if index == 0 { vec![-1, 8, 8, 1] } else { vec![-1, 8, 8, 4] };
        model.tensors[index].push((7, Field::Ints(shape)));
    }
    model
}

/// Models of the corpus are those made here; `MEMFIT_BLESS=1` writes them.
#[test]
fn the_corpus_has_these_models() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/tflite");
    let offsets = with_offsets(&small().bytes(), &[0, -1, 64, 64, 64, 320]).unwrap();
    let looped = Model { codes: vec![CONV_2D, WHILE, RESHAPE, ADD], ..small() };
    for (name, bytes) in [
        ("small", small().bytes()),
        ("stateful", stateful().bytes()),
        ("open", open().bytes()),
        ("offsets", offsets),
        ("damaged/while", looped.bytes()),
        ("damaged/cut", small().bytes()[..700].to_vec()),
    ] {
        let path = folder.join(format!("{name}.tflite"));
        if std::env::var_os("MEMFIT_BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}");
    }
}

#[test]
fn open_dimensions_have_the_number_of_the_file_or_none() {
    let bytes = open().bytes();
    let with =
        |name: &str, size: u64| read(&bytes, &TfliteOptions { dims: [(name.to_owned(), size)].into() });
    assert_eq!(with("x[0]", 1).unwrap().graph.value_count(), 4);
    for (result, expected) in [
        (read(&bytes, &TfliteOptions::default()), "open dimensions of the inputs have no number: `x[0]`"),
        (with("x[0]", 8), "`x[0]` is `1` in this file"),
        (with("x[1]", 8), "no input of this model has an open dimension `x[1]`"),
    ] {
        assert!(result.as_ref().unwrap_err().to_string().contains(expected), "{result:?}");
    }
    // Open though no input is: only a run can tell.
    let mut model = small();
    model.tensors[2].push((7, Field::Ints(vec![-1, 8, 8, 4])));
    assert!(
        refused(&model).contains("tensor `c`: a dimension that only a run can tell"),
        "{}",
        refused(&model)
    );
}

#[test]
fn what_cannot_be_planned_says_where_and_why() {
    let change = |change: &dyn Fn(&mut Model)| {
        let mut model = small();
        change(&mut model);
        refused(&model)
    };
    for (message, expected) in [
        (change(&|m| m.codes[1] = WHILE), "op 1 (WHILE): control flow"),
        (change(&|m| m.ops[0].1[0] = 5), "op 0 (CONV_2D): tensor `y`: it is read before an op makes it"),
        (change(&|m| m.ops[1].2[0] = 2), "op 1 (RELU): tensor `c`: it is made twice"),
        (change(&|m| m.ops[1].2[0] = 1), "op 1 (RELU): tensor `w`: it is made, and its data is in the file"),
        (change(&|m| m.ops[1].1[0] = 77), "op 1: damaged: there is no tensor `77`"),
        (change(&|m| m.ops[1].0 = 9), "lies outside of the file"),
        (
            change(&|m| m.tensors[2] = tensor("c\u{1b}", STRING, &[1], 0)),
            "tensor `c\u{fffd}`: its elements have no fixed size",
        ),
        (change(&|m| m.tensors[2] = tensor("c", F32, &[-3], 0)), "tensor `c`: dimension `-3` is negative"),
        (change(&|m| m.tensors[2] = tensor("c", F32, &[i32::MAX; 9], 0)), "tensor `c`: its size overflows"),
        (change(&|m| m.tensors[2] = tensor("c", F32, &[1; 65], 0)), "`65` dimensions; more than 64"),
        (change(&|m| m.tensors[2] = tensor("c", F32, &[1], 55)), "the list of buffers"),
        (change(&|m| m.ops.truncate(2)), "tensor `y`: an output that no op makes"),
        (change(&|m| m.subgraphs = 0), "the model has no subgraph"),
        (
            change(&|m| m.tensors[1] = tensor("w", F32, &[1], 0)),
            "op 0 (CONV_2D): tensor `w`: it is read before an op makes it",
        ),
    ] {
        assert!(message.contains(expected), "{message}\nexpected {expected}");
    }
    let mut custom = small();
    custom.codes[1] = CUSTOM;
    assert_eq!(graph(&custom).op(OpId::at(1)).kind, "CUSTOM.");
    assert_eq!(graph(&custom).op(OpId::at(1)).effect, Effect::Once);
}

/// The old part is in the new file as it was; what has offsets reads as what had none.
#[test]
fn offsets_are_written_beside_all_that_was_there() {
    let before = small().bytes();
    assert_eq!(offsets_in(&before).unwrap(), None);
    let offsets = [0, -1, 64, 320, 320, 0];
    let after = with_offsets(&before, &offsets).unwrap();
    assert_eq!(offsets_in(&after).unwrap().unwrap(), offsets);
    assert!(after.ends_with(&before) && (after.len() - before.len()).is_multiple_of(64));
    let plain = |bytes: &[u8]| read(bytes, &TfliteOptions::default()).unwrap();
    assert_eq!(plain(&after).graph.digest(), plain(&before).graph.digest());
    assert_eq!(plain(&after).tensors, plain(&before).tensors);
    // Written again, they are replaced.
    let again = with_offsets(&after, &[16; 6]).unwrap();
    assert_eq!(offsets_in(&again).unwrap().unwrap(), [16; 6]);
    assert!(again.ends_with(&before));
    // A model without metadata, and one whose entry is of another form.
    let bare = Model { metadata: vec![], ..small() };
    assert_eq!(offsets_in(&with_offsets(&bare.bytes(), &offsets).unwrap()).unwrap().unwrap(), offsets);
    for (words, expected) in
        [(vec![2, 0, 0], "version `2`"), (vec![1, 0, 9, 0], "no list of offsets"), (vec![], "no list")]
    {
        let odd = Model { metadata: vec![(METADATA.into(), words)], ..small() };
        assert!(offsets_in(&odd.bytes()).unwrap_err().to_string().contains(expected), "{expected}");
        assert_eq!(offsets_in(&with_offsets(&odd.bytes(), &offsets).unwrap()).unwrap().unwrap(), offsets);
    }
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let good = small().bytes();
    let all = |bytes: &[u8]| {
        let model = read(bytes, &TfliteOptions::default())?;
        buffers(bytes, &TfliteOptions::default())?;
        let offsets = vec![0; model.tensors.len()];
        let written = with_offsets(bytes, &offsets)?;
        assert_eq!(offsets_in(&written)?.as_deref(), Some(offsets.as_slice()));
        assert_eq!(read(&written, &TfliteOptions::default())?.graph.digest(), model.graph.digest());
        Ok(model)
    };
    survives_every_flip_and_cut(&good, all);
    survives_random_damage(&good, 3, all);
}

/// Lists may overlap: a small file must not unfold into a large one.
#[test]
fn what_is_unfolded_is_bounded_by_the_file() {
    let mut ops = vec![(0, vec![0; 40_000], vec![])];
    ops.resize(2001, (0, vec![], vec![]));
    let mut bytes = Model { ops, outputs: vec![0], ..small() }.bytes();
    assert!(read(&bytes, &TfliteOptions::default()).is_ok());
    // Every op of the list becomes the first.
    let list = bytes.windows(4).position(|window| window == 2001u32.to_le_bytes()).unwrap() + 4;
    let first = u32::from_le_bytes(bytes[list..list + 4].try_into().unwrap());
    for index in 1..2001u32 {
        let at = list + 4 * usize::try_from(index).unwrap();
        bytes[at..at + 4].copy_from_slice(&(first - 4 * index).to_le_bytes());
    }
    let error = read(&bytes, &TfliteOptions::default()).unwrap_err().to_string();
    assert!(error.contains("overlap, and are longer than the file together"), "{error}");
}
