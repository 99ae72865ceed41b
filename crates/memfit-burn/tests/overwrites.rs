//! An operand that ends with an op, and that the backend writes its output over, counts once with it: no more than the heap has, and no
//! less.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]
#![allow(clippy::single_range_in_vec_init, reason = "a slice of the first dimension is meant")]

mod dense;

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Distribution, Int, Tensor, TensorData, activation};
use burn_flex::{Flex, FlexDevice};
use dense::Net;
use memfit_burn::{
    Budget, Memfit, Mode, Options, Report, attempt, enable, enable_with, evict_all, heap, needs, report,
    reset_peak, step,
};

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

type F = Memfit<Flex>;
type B = Autodiff<F>;

/// There is one device, and one heap: one test at a time.
static DEVICE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

const SIDE: usize = 512;
/// Bytes of a square tensor of f32.
const SIZE: usize = 4 * SIDE * SIDE;
/// What Burn and memfit take beside tensors while an op runs.
const SLACK: usize = SIZE / 8;

/// What a case brings along: a tensor that can be computed again, and one beside it.
struct Given {
    x: Tensor<F, 2>,
    other: Tensor<F, 2>,
}

/// A case: its name, whether the operand and the output count once, and the op on operands that have been prepared.
type Ready = Box<dyn FnOnce() -> Box<dyn std::any::Any>>;
type Case = (&'static str, bool, fn(Given) -> Ready);

fn ready<T: 'static>(op: impl FnOnce() -> T + 'static) -> Ready {
    Box::new(|| Box::new(op()))
}

fn ints(x: Tensor<F, 2>) -> Tensor<F, 2, Int> {
    (x * 10.0).int()
}

const CASES: [Case; 31] = [
    ("unary", true, |Given { x, .. }| ready(|| x.exp())),
    ("square root", true, |Given { x, .. }| ready(|| x.sqrt())),
    ("scalar", true, |Given { x, .. }| ready(|| x * 3.0)),
    ("clamped", true, |Given { x, .. }| ready(|| x.clamp(0.1, 0.5))),
    ("negative", true, |Given { x, .. }| ready(|| x.neg())),
    ("relu", true, |Given { x, .. }| ready(|| activation::relu(x))),
    ("gelu", true, |Given { x, .. }| ready(|| activation::gelu(x))),
    ("sigmoid", true, |Given { x, .. }| ready(|| activation::sigmoid(x))),
    ("quotient", true, |Given { x, other }| ready(|| x / other)),
    ("sum", true, |Given { x, other }| ready(|| x + other)),
    ("of f16", true, |Given { x, .. }| {
        let x = x.cast(DType::F16);
        ready(|| x.tanh())
    }),
    ("of integers", true, |Given { x, .. }| {
        let x = ints(x);
        ready(|| x + 3)
    }),
    ("a row", true, |Given { x, other }| {
        let row = other.slice([0..1]).exp();
        ready(|| x + row)
    }),
    ("a column", true, |Given { x, other }| {
        let column = other.sum_dim(1);
        ready(|| x / column)
    }),
    ("reshaped", true, |Given { x, .. }| {
        let x = x.reshape([SIDE / 2, 2, SIDE]);
        ready(|| x.exp())
    }),
    ("of a view, back", true, |Given { x, .. }| {
        let x = x.transpose().transpose();
        ready(|| x.exp())
    }),
    // From here on the kernel has other bytes for its output, or memfit can't be sure.
    ("held", false, |Given { x, .. }| {
        let held = x.clone();
        ready(|| (x.exp(), held))
    }),
    ("a view is held", false, |Given { x, .. }| {
        let held = x.clone().slice([0..2]);
        ready(|| (x.exp(), held))
    }),
    ("transposed", false, |Given { x, .. }| {
        let x = x.transpose();
        ready(|| x.exp())
    }),
    ("with what is transposed", false, |Given { x, other }| {
        let other = other.transpose();
        ready(|| x + other)
    }),
    ("to what is transposed", false, |Given { x, other }| {
        let x = x.transpose();
        ready(|| x + other)
    }),
    ("a part", false, |Given { x, .. }| {
        let x = x.slice([0..SIDE / 2]);
        ready(|| x.exp())
    }),
    ("a part of the end", false, |Given { x, .. }| {
        let x = x.slice([SIDE / 2..SIDE]);
        ready(|| x.exp())
    }),
    ("with itself", false, |Given { x, .. }| ready(|| x.clone() * x)),
    ("a square", false, |Given { x, .. }| ready(|| x.powi_scalar(2))),
    ("repeated", false, |Given { x, other }| {
        let row = x.slice([0..1]).exp();
        ready(|| row + other)
    }),
    ("a row of f64", false, |Given { x, other }| {
        let (x, row) = (x.cast(DType::F64), other.cast(DType::F64).slice([0..1]).exp());
        ready(|| x + row)
    }),
    ("a channel", false, |Given { x, other }| {
        let x = x.reshape([8, SIDE / 8, SIDE]);
        let channel = other.slice([0..SIDE / 8, 0..1]).exp().reshape([1, SIDE / 8, 1]);
        ready(|| x * channel)
    }),
    ("another type", false, |Given { x, .. }| ready(|| x.cast(DType::F64))),
    ("compared", false, |Given { x, .. }| ready(|| x.greater_elem(0.5))),
    ("a product", false, |Given { x, other }| ready(|| x.matmul(other))),
];

#[test]
fn the_account_has_what_the_heap_has() {
    let _alone = alone();
    let mut wrong = Vec::new();
    for (name, once, prepare) in CASES {
        // Twice: in the second round there are threads, buffers and tables already.
        for round in 0..2 {
            enable(&FlexDevice, Budget::UNLIMITED).unwrap();
            let source = Tensor::<F, 2>::random([SIDE, SIDE], Distribution::Default, &FlexDevice);
            let other = source.clone().cos();
            let op = prepare(Given { x: source.clone().sin(), other: other.clone() });
            reset_peak(&FlexDevice);
            let (counted, there, before) =
                (report(&FlexDevice).engine.used.0, heap::current(), report(&FlexDevice).host);
            heap::mark();
            let made = op();
            let (most, after) = (heap::mark(), report(&FlexDevice));
            let counted = usize::try_from(after.engine.peak.0 - counted).unwrap();
            let taken = most - there;
            let reused = after.host.reused - before.reused;
            println!("{name}: counted {counted}, taken {taken}, reused {reused}");
            let is_once = reused == 1 && counted == 0;
            let is_enough = taken <= counted + SLACK || name == "a product";
            if round > 0 && (is_once != once || !is_enough || after.host.apart + after.host.missized > 0) {
                wrong.push((name, counted, taken, reused, after.host));
            }
            drop(made);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What was overwritten, and what was computed from it before, come back to the bits that they had.
#[test]
fn what_was_overwritten_can_be_computed_again() {
    fn run<B: burn::tensor::backend::Backend<Device = FlexDevice>>(evict: impl Fn()) -> Vec<TensorData> {
        B::seed(&FlexDevice, 7);
        let source = Tensor::<B, 2>::random([64, 64], Distribution::Default, &FlexDevice);
        let x = source.clone().sin() + 1.0;
        let before = x.clone().cos();
        let y = x.sqrt();
        let bias = source.clone().slice([0..1]).exp();
        let z = (y.clone() / before.clone() + bias).tanh();
        let mut read = Vec::new();
        for tensor in [&z, &y, &before, &z, &source, &before, &y] {
            evict();
            read.push(tensor.to_data());
        }
        read
    }
    let _alone = alone();
    let expected = run::<Flex>(|| ());
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    assert_eq!(run::<F>(|| evict_all(&FlexDevice)), expected);
    let report = report(&FlexDevice);
    assert!(report.host.reused >= 4 && report.engine.recomputes > 20, "{report:?}");
    assert_eq!((report.host.apart, report.host.missized, report.host.copies), (0, 0, 0));
}

const WIDTHS: [usize; 4] = [32, 256, 256, 16];

/// Losses of so many steps; after each, `ended`.
fn train<B: AutodiffBackend<Device = FlexDevice>, O: Optimizer<Net<B>, B>>(
    mut optimizer: O,
    steps: usize,
    batch: usize,
    ended: &mut dyn FnMut(),
) -> Vec<f32> {
    B::seed(&FlexDevice, 3);
    let mut net = Net::<B>::new(&WIDTHS, &FlexDevice);
    let mut losses = Vec::new();
    for at in 0..steps {
        let values = |width: usize| {
            let values: Vec<f32> = (0..batch * width).map(|value| ((value * 7 + at) as f32).sin()).collect();
            Tensor::<B, 2>::from_data(TensorData::new(values, [batch, width]), &FlexDevice)
        };
        let loss = (net.forward(values(WIDTHS[0])) - values(WIDTHS[3])).powi_scalar(2).mean();
        losses.extend(loss.to_data().iter::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(1e-3, net, gradients);
        ended();
    }
    losses
}

/// Bytes of the largest parameter.
const LARGEST: usize = 4 * WIDTHS[1] * WIDTHS[2];

/// How many bytes of tensors the account, and how many the heap has had at most beside what ops take for themselves, from the third step on.
fn peaks<O: Optimizer<Net<B>, B>>(name: &str, optimizer: impl Fn() -> O) -> (usize, usize) {
    let run = || {
        enable_with(&FlexDevice, Options { meter: Some(heap::METER), ..Options::default() }).unwrap();
        let (before, mut done, mut seen) = (heap::current(), 0, Report::default());
        let ended = &mut || {
            done += 1;
            seen = report(&FlexDevice);
            if done == 2 {
                reset_peak(&FlexDevice);
            }
        };
        train::<B, _>(optimizer(), 6, 8, ended);
        (seen, usize::try_from(seen.host.working).unwrap() - before)
    };
    // Threads and buffers are there after the first.
    run();
    let (seen, most) = run();
    let counted = usize::try_from(seen.engine.peak.0).unwrap();
    println!("{name}: counted {counted}, heap {most}, {:?}", seen.host);
    assert_eq!((seen.host.apart, seen.host.missized), (0, 0), "{name}");
    (counted, most)
}

#[test]
fn a_training_counts_what_it_takes() {
    let _alone = alone();
    let momentum = || SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init();
    let of = [
        ("SGD", peaks("SGD", momentum)),
        ("Adam", peaks("Adam", || AdamConfig::new().init())),
        ("AdamW", peaks("AdamW", || AdamWConfig::new().init())),
    ];
    for (name, (counted, heap)) in of {
        // All that is not tensors is on the heap as well: so one that counts twice shows as one that the heap never has.
        assert!(
            counted <= heap && heap <= counted + LARGEST * 3 / 4,
            "{name}: {counted} counted, {heap} there"
        );
    }
}

#[test]
fn adamw_trains_in_less_to_the_same_bits() {
    let _alone = alone();
    let (steps, batch) = (6, 8);
    let plain = train::<Autodiff<Flex>, _>(AdamWConfig::new().init(), steps, batch, &mut || ());
    let mut ended = || step(&FlexDevice).unwrap();
    enable_with(&FlexDevice, Options { record: true, ..Options::default() }).unwrap();
    assert_eq!(train::<B, _>(AdamWConfig::new().init(), steps, batch, &mut ended), plain);
    let needs = needs(&FlexDevice).unwrap();
    let parameters: usize = WIDTHS.windows(2).map(|pair| 4 * (pair[0] + 1) * pair[1]).sum();
    println!("{needs:?}, parameters {parameters}, the largest {LARGEST}");
    // The parameters, two moments of each, the gradients that wait, and the quotient of the largest moments: two operands, and no output.
    assert!(needs.floor.0 < (3 * parameters + 3 * LARGEST) as u64, "{needs:?}");
    for mode in [Mode::Online, Mode::Planned] {
        for share in [0.15, 0.4, 0.7] {
            let budget = needs.above_floor(share);
            enable_with(&FlexDevice, Options { mode, budget, ..Options::default() }).unwrap();
            let losses =
                attempt(&FlexDevice, || train::<B, _>(AdamWConfig::new().init(), steps, batch, &mut ended));
            let seen = report(&FlexDevice);
            println!("{mode:?} {share}: {} again, {:?}", seen.engine.recomputes, seen.host);
            assert_eq!(losses.unwrap(), plain, "{mode:?} {share}");
            assert!(seen.engine.peak <= budget.bytes() && seen.engine.recomputes > 0, "{mode:?} {share}");
            assert!(seen.host.reused > 0 && seen.host.apart == 0, "{mode:?} {share}: {:?}", seen.host);
            if mode == Mode::Planned {
                assert!(seen.steps.guided > 0, "{share}: {:?}", seen.steps);
            }
        }
    }
}
