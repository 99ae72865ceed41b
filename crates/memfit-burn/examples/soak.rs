//! A long training whose shapes change, within a budget that something has to go for: does anything grow?
//!
//! `cargo run --release -p memfit-burn --example soak -- [STEPS]` prints a line of JSON for each way to train: memory of the
//! process, of its allocator and of the tensors, memfit's tables, and time per step, in the second quarter of the steps and in the last.
//! `cargo xtask soak` makes a table of it.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::fs;
use std::time::Instant;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Int, Tensor, TensorData};
use memfit_burn::{Budget, Flex, FlexDevice, Memfit, Mode, Options, enable_with, heap, report, step};
use serde_json::{Value, json};

type B = Autodiff<Memfit<Flex>>;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

const WIDTH: usize = 48;
const WORDS: usize = 100;
const CLASSES: usize = 10;
/// Values that are looked at, over the whole training.
const LOOKS: usize = 40;

/// An embedding, layers with attention and dropout, a batch norm.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    embedding: Embedding<B>,
    encoder: TransformerEncoder<B>,
    norm: BatchNorm<B>,
    out: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        Net {
            embedding: EmbeddingConfig::new(WORDS, WIDTH).init(device),
            encoder: TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 4, 2).init(device),
            norm: BatchNormConfig::new(WIDTH).init(device),
            out: LinearConfig::new(WIDTH, CLASSES).init(device),
        }
    }

    fn forward(&self, words: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let seen = self.encoder.forward(TransformerEncoderInput::new(self.embedding.forward(words)));
        self.out.forward(self.norm.forward(seen.mean_dim(1).squeeze_dim::<2>(1)))
    }
}

/// Numbers that look random; the same on every machine.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % end
    }
}

/// Words and classes. Some shapes come again and again, others once in a while.
fn batch<B: Backend>(
    numbers: &mut Sequence,
    shape: Option<[usize; 2]>,
    device: &B::Device,
) -> (Tensor<B, 2, Int>, Tensor<B, 1, Int>) {
    let lengths = [16, 24, 32, 16 + numbers.below(17)];
    let [size, length] = shape.unwrap_or([[8, 12, 16][numbers.below(3)], lengths[numbers.below(4)]]);
    let mut number = |end| i64::try_from(numbers.below(end)).unwrap_or_default();
    let mut drawn = |count, end| (0..count).map(|_| number(end)).collect::<Vec<_>>();
    let words = TensorData::new(drawn(size * length, WORDS), [size, length]);
    let labels = TensorData::new(drawn(size, CLASSES), [size]);
    (Tensor::from_data(words, device), Tensor::from_data(labels, device))
}

/// A training; `each` is called after every step.
fn train<B: AutodiffBackend>(steps: usize, longest: bool, device: &B::Device, mut each: impl FnMut(f32)) {
    B::seed(device, 1);
    let mut numbers = Sequence(7);
    let mut net = Net::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    for _ in 0..steps {
        let (words, labels) = batch::<B>(&mut numbers, longest.then_some([16, 32]), device);
        let loss = CrossEntropyLossConfig::new().init(device).forward(net.forward(words), labels);
        let told = loss.clone().into_scalar().elem::<f32>();
        net = optimizer.step(1e-3, net.clone(), GradientsParams::from_grads(loss.backward(), &net));
        each(told);
    }
}

/// Bytes of the process in memory; `None` where the system does not say.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What was seen in the middle of a part of the training.
fn told(seen: &[[Option<f64>; 5]]) -> Value {
    let names = ["resident_bytes", "heap_bytes", "live_bytes", "table_bytes", "seconds_per_step"];
    let middle = |at: usize| Some(median(seen.iter().map(|row| row[at]).collect::<Option<_>>()?));
    names
        .iter()
        .enumerate()
        .filter_map(|(at, name)| Some(((*name).to_owned(), Value::from(middle(at)?))))
        .collect()
}

fn soak(mode: Mode, steps: usize) -> Result<Value, memfit_burn::Fault> {
    let device = FlexDevice;
    enable_with(&device, Options::default())?;
    let mut used = 0;
    train::<B>(2, true, &device, |_| used = report(&device).engine.used.0);
    let peak = report(&device).engine.peak.0;
    let budget = used + (peak - used) * 6 / 10;
    enable_with(&device, Options { budget: Budget::of(budget), mode, ..Options::default() })?;
    let every = (steps / LOOKS).max(1);
    let (mut seen, mut at, mut since, mut failed) = (Vec::new(), 0, Instant::now(), None);
    train::<B>(steps, false, &device, |loss| {
        at += 1;
        if mode == Mode::Planned {
            failed = step(&device).err().or(failed.take());
        }
        if at % every == 0 {
            let now = report(&device);
            let bytes = [now.engine.used.0, now.tables].map(|bytes| Some(bytes as f64));
            let seconds = since.elapsed().as_secs_f64() / every as f64;
            let heap = heap::current() as f64;
            seen.push([resident().map(|bytes| bytes as f64), Some(heap), bytes[0], bytes[1], Some(seconds)]);
            since = Instant::now();
        }
        assert!(loss.is_finite(), "step {at}");
    });
    if let Some(fault) = failed {
        return Err(fault);
    }
    let now = report(&device);
    assert!(now.engine.peak.0 <= budget, "{} > {budget}", now.engine.peak);
    Ok(json!({
        "kind": if mode == Mode::Planned { "planned" } else { "online" },
        "steps": steps,
        "budget": budget,
        "recomputed_ops": now.engine.recomputes,
        "guided_steps": now.steps.guided,
        "second_quarter": told(&seen[seen.len() / 4..seen.len() / 2]),
        "last_quarter": told(&seen[seen.len() - seen.len() / 4..]),
    }))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let steps = std::env::args().nth(1).map_or(Ok(2000), |text| text.parse())?;
    for mode in [Mode::Online, Mode::Planned] {
        println!("{}", soak(mode, steps)?);
    }
    Ok(())
}

#[test]
fn nothing_grows_while_shapes_change() -> Result<(), memfit_burn::Fault> {
    let told = soak(Mode::Online, 120)?;
    let number = |quarter: &str, name: &str| told[quarter][name].as_f64().unwrap_or(f64::NAN);
    for (name, slack) in [("live_bytes", 65_536.0), ("heap_bytes", 262_144.0), ("table_bytes", 65_536.0)] {
        let (before, after) = (number("second_quarter", name), number("last_quarter", name));
        assert!(after <= before * 1.02 + slack, "{name}: {before} -> {after}");
    }
    assert!(told["recomputed_ops"].as_u64() > Some(0));
    Ok(())
}
