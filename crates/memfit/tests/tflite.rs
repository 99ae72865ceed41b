//! Offsets for TensorFlow Lite models: what a runtime that knows nothing but them and the file would find in its arena.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../../memfit-formats/tests/common/flatbuffer.rs"]
mod flatbuffer;

use flatbuffer::{Field, Model, tensor};
use memfit::formats::tflite::{self, TfliteOptions, buffers, offsets_in, with_offsets};
use memfit::ir::{OpId, ValueId};
use memfit::{Budget, Device, Goal, Options, PlaceGoal, Tools, input, place, plan};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }
}

/// Additions, activations, reshapes, convolutions and filters with a variable, over what there is already.
fn random(seed: u64) -> Vec<u8> {
    let random = &mut Random(seed);
    let mut shapes: Vec<Vec<i32>> = vec![vec![1, 24], vec![1, 40]];
    let mut tensors = vec![tensor("t0", 9, &shapes[0], 0), tensor("t1", 9, &shapes[1], 0)];
    let (mut made, mut ops) = (vec![0, 1], Vec::new());
    for _ in 0..3 + random.below(24) {
        let from = made[random.below(made.len())];
        let shape = shapes[usize::try_from(from).unwrap()].clone();
        let count: i32 = shape.iter().product();
        let code = random.below(5);
        let (inputs, shape) = match code {
            0 => {
                let alike: Vec<i32> = made
                    .iter()
                    .copied()
                    .filter(|&at| shapes[usize::try_from(at).unwrap()] == shape)
                    .collect();
                (vec![from, alike[random.below(alike.len())]], shape)
            }
            1 => (vec![from], shape),
            2 if shape.len() == 2 => (vec![from], vec![1, 1, count]),
            2 => (vec![from], vec![1, count]),
            3 => (vec![from], vec![1, 8 * i32::try_from(1 + random.below(6)).unwrap()]),
            _ => {
                let mut variable = tensor("variable", 9, &[1, 20], 0);
                variable.push((5, Field::Byte(1)));
                shapes.push(vec![1, 20]);
                tensors.push(variable);
                (vec![from, i32::try_from(tensors.len() - 1).unwrap()], shape)
            }
        };
        let output = i32::try_from(tensors.len()).unwrap();
        tensors.push(tensor(&format!("t{output}"), 9, &shape, 0));
        shapes.push(shape);
        made.push(output);
        ops.push((i32::try_from(code).unwrap(), inputs, vec![output]));
    }
    let outputs = vec![*made.last().unwrap(), made[random.below(made.len())]];
    // ADD, RELU, RESHAPE, CONV_2D, SVDF
    let codes = vec![0, 19, 22, 3, 27];
    Model { codes, tensors, ops, inputs: vec![0, 1], outputs, metadata: vec![], subgraphs: 1 }.bytes()
}

fn microcontroller() -> Device {
    input::device_file(include_str!("../../../examples/tflite/microcontroller.toml")).unwrap()
}

fn goal() -> Goal {
    let mut options = Options { strategies: vec!["order:given".into()], ..Options::default() };
    (options.means.recompute, options.means.offload) = (false, false);
    Goal { options, ..Goal::new(microcontroller(), Budget::Device) }
}

/// Runs the ops in the order of the file: each writes its mark over the bytes of what it makes, and must find the marks of what it
/// reads. Returns how high the arena is.
fn run(bytes: &[u8], offsets: &[i32]) -> usize {
    let model = tflite::read(bytes, &TfliteOptions::default()).unwrap();
    let graph = &model.graph;
    let mut ranges = vec![None; graph.value_count()];
    let mut arena = vec![None; 1 << 16];
    let mut height = 0;
    for (value, &offset) in model.tensors.iter().zip(offsets) {
        let Some(value) = *value else { continue };
        assert_eq!(
            offset < 0,
            graph.value(value).role.is_persistent(),
            "variables are the runtime's, and nothing else is"
        );
        let Ok(start) = usize::try_from(offset) else { continue };
        assert!(start.is_multiple_of(16));
        let range = start..start + usize::try_from(graph.value(value).size.0).unwrap();
        height = height.max(range.end);
        assert!(
            ranges[value.index()].is_none_or(|other| other == (range.start, range.end)),
            "views lie where they look"
        );
        ranges[value.index()] = Some((range.start, range.end));
    }
    let write = |arena: &mut Vec<Option<ValueId>>, value: ValueId| {
        if let Some((start, end)) = ranges[value.index()] {
            arena[start..end].fill(Some(value));
        }
    };
    let find = |arena: &Vec<Option<ValueId>>, value: ValueId| {
        let (start, end) = ranges[value.index()].unwrap_or((0, 0));
        assert!(
            arena[start..end].iter().all(|mark| *mark == Some(value)),
            "{} is gone",
            graph.value(value).name
        );
    };
    let values = || (0..graph.value_count()).map(ValueId::at);
    let inputs: Vec<ValueId> = values().filter(|&value| graph.value(value).producer.is_none()).collect();
    inputs.iter().for_each(|&value| write(&mut arena, value));
    inputs.iter().for_each(|&value| find(&arena, value));
    for op in (0..graph.op_count()).map(|at| graph.op(OpId::at(at))) {
        op.reads.iter().for_each(|&value| find(&arena, value));
        op.writes.iter().for_each(|&value| write(&mut arena, value));
    }
    graph.results().iter().for_each(|&value| find(&arena, value));
    height
}

#[test]
fn a_runtime_finds_what_it_reads_at_planned_offsets() {
    let (mut lower, mut shared) = (0, 0);
    for seed in 0..150 {
        let bytes = random(seed);
        let model = tflite::read(&bytes, &TfliteOptions::default()).unwrap();
        let planned = plan(&model.graph, &goal(), &Tools::none()).unwrap();
        let file = planned.file(&model.graph, &goal());
        let written = with_offsets(&bytes, &tflite::offsets(&file, &model).unwrap()).unwrap();
        let offsets = offsets_in(&written).unwrap().unwrap();
        assert_eq!(offsets.len(), model.tensors.len());
        let height = run(&written, &offsets);
        // Without variables it is the height of the plan; what the runtime would make of the same model is no lower.
        let variables = file.plan.program.buffers.iter().any(|buffer| {
            buffer.content.value().is_some_and(|value| model.graph.value(value).role.is_persistent())
        });
        let peak = usize::try_from(planned.summary.peak.0).unwrap();
        assert!(
            height <= peak && (variables || height.next_multiple_of(16) == peak),
            "seed {seed}: {height}, {peak}"
        );
        let rows = buffers(&bytes, &TfliteOptions::default()).unwrap();
        let micro = PlaceGoal {
            capacity: None,
            align: memfit::Bytes(16),
            placer: "tflite-micro".into(),
            seed: 0,
            effort: 1,
        };
        let micro = place(&rows, &micro, &Tools::none()).unwrap();
        let micro = usize::try_from(micro.peak.0).unwrap();
        assert!(height <= micro, "seed {seed}: {height}, the runtime takes {micro}");
        lower += usize::from(height.next_multiple_of(16) < micro);
        shared += usize::from(file.plan.program.buffers.iter().any(|buffer| buffer.over.is_some()));
    }
    assert!(lower > 50 && shared > 50, "{lower} lower, {shared} with bytes taken over");
}

#[test]
fn plans_that_offsets_cannot_say_are_refused() {
    let bytes = random(1);
    let model = tflite::read(&bytes, &TfliteOptions::default()).unwrap();
    let planned = plan(&model.graph, &goal(), &Tools::none()).unwrap();
    let good = planned.file(&model.graph, &goal());
    assert!(tflite::offsets(&good, &model).is_ok());
    let refused =
        |file: &memfit::formats::plan_json::PlanFile| tflite::offsets(file, &model).unwrap_err().message;
    let mut two = good.clone();
    two.header.lanes = 2;
    assert!(refused(&two).contains("several banks or lanes"));
    let mut turned = good.clone();
    turned.plan.program.steps.reverse();
    assert!(refused(&turned).contains("another order than the file"));
    let mut odd = good.clone();
    odd.plan.layout.places.iter_mut().for_each(|place| place.offset.0 += 8);
    assert!(refused(&odd).contains("is no multiple of 16"));
    let mut far = good.clone();
    far.plan.layout.places.iter_mut().for_each(|place| place.offset.0 += 1 << 40);
    assert!(refused(&far).contains("does not fit 31 bits"));
    let split = tflite::Model { beside: None, ..model.clone() };
    assert!(tflite::offsets(&good, &split).unwrap_err().message.contains("several subgraphs need the arena"));
}
