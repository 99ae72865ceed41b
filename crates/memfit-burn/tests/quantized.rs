//! Quantised tensors: each op has the bits of the plain backend, with all that can go evicted before it is read too; a model with quantised
//! weights answers within a budget as it does without memfit.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "a test")]

mod beside;

use beside::{Beside, alone, quietly, tried};
use burn::backend::Autodiff;
use burn::module::{Module as _, Quantizer};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::quantization::{
    Calibration, QuantLevel, QuantScheme, QuantStore, QuantValue, compute_q_params, compute_range,
};
use burn::tensor::{DType, Distribution, FloatDType, Int, Tensor, TensorData, s};
use memfit_burn::{
    Budget, Device, Fault, Flex, FlexDevice, Memfit, Options, Tier, attempt, enable, enable_with, evict,
    is_resident, report, reset_peak, swap_out,
};

type Function<B> = Box<dyn Fn(Tensor<B, 2>, Tensor<B, 2>) -> TensorData>;

macro_rules! functions {
    ($x:ident, $y:ident: $($name:literal => $result:expr;)*) => {
        vec![$(($name, Box::new(|$x: Tensor<B, 2>, $y: Tensor<B, 2>| {
            let _ = &$y;
            $result.into_data()
        }) as Function<B>)),*]
    };
}

/// Of a quantised tensor of 8 × 12, and one that is not.
fn functions<B: Backend>() -> Vec<(&'static str, Function<B>)> {
    functions! { x, y:
        "itself" => x;
        "dequantize" => x.dequantize();
        "dequantize and cast" => x.dequantize().cast(FloatDType::F64);
        "reshape" => x.reshape([12, 8]);
        "reshape of a view" => x.transpose().reshape([8, 12]);
        "transpose" => x.transpose();
        "permute" => x.permute([1, 0]);
        "flip" => x.flip([1]);
        "expand" => x.unsqueeze::<3>().expand([3, 8, 12]);
        "slice" => x.slice([2..6, 4..12]);
        "slice with steps" => x.slice(s![0..8;2, 4..12]);
        "slice of a view" => x.transpose().slice([0..8, 0..4]).dequantize();
        "select" => { let rows = Tensor::<B, 1, Int>::from_data([5, 1, 1, 0], &x.device()); x.select(0, rows) };
        "gather" => {
            let at = Tensor::<B, 1, Int>::arange(0..24, &x.device()).remainder_scalar(8);
            x.gather(0, at.reshape([2, 12]))
        };
        "argmax" => x.argmax(1);
        "argmin" => x.argmin(0);
        "sum" => x.sum();
        "add" => x.clone() + x;
        "mul scalar" => x * 3.0;
        "abs" => x.abs();
        "max" => x.max();
        "sort" => x.sort(1);
        "cat" => Tensor::cat(vec![x.clone(), x], 0);
        "matmul" => x.clone().matmul(x.transpose());
        "matmul of both kinds" => y.matmul(x.transpose());
        "matmul of both kinds, the other way" => x.matmul(y.transpose());
    }
}

fn schemes() -> Vec<QuantScheme> {
    let native = QuantScheme::default().with_store(QuantStore::Native);
    let blocks = native.with_level(QuantLevel::block([4]));
    let packed = QuantScheme::default().with_value(QuantValue::Q8S);
    vec![native, native.with_value(QuantValue::Q8S), blocks, blocks.with_value(QuantValue::Q8S), packed]
        .into_iter()
        .chain([native.with_value(QuantValue::Q4F), native.with_value(QuantValue::Q2S)])
        .collect()
}

/// Numbers between -1 and 1, both zeros among them.
fn numbers<B: Backend>(start: usize, device: &B::Device) -> Tensor<B, 2> {
    let number = |at: usize| match at % 17 {
        3 => 0.0,
        7 => -0.0,
        _ => ((at * 37 + start * 5) % 101) as f32 / 50.0 - 1.0,
    };
    let data = TensorData::new((0..96).map(number).collect::<Vec<f32>>(), [8, 12]);
    Tensor::from_data(data, (device, DType::F32)) * 1.25
}

/// How a tensor is quantised.
#[derive(Clone, Copy, Debug)]
enum Way {
    Dynamic,
    Calibrated,
    Data,
}

/// What a function makes of a tensor, quantised by `scheme`; and the data of that.
fn run<B: Backend>(
    function: &Function<B>,
    (way, scheme): (Way, QuantScheme),
    device: &B::Device,
    between: impl Fn(),
) -> Option<(TensorData, TensorData)> {
    tried(|| {
        // What is still held can be quantised again.
        let (held, y) = (numbers::<B>(1, device), numbers::<B>(4, device));
        let x = held.clone();
        let quantized = match way {
            Way::Dynamic => x.quantize_dynamic(&scheme),
            Way::Calibrated | Way::Data => {
                let range = compute_range(&scheme, &x, &Calibration::MinMax);
                x.quantize(&scheme, compute_q_params(&scheme, range))
            }
        };
        let quantized = match way {
            Way::Data => Tensor::from_data(quantized.into_data(), device),
            _ => quantized,
        };
        between();
        let made = function(quantized.clone(), y);
        between();
        let data = quantized.into_data();
        drop(held);
        (made, data)
    })
}

/// How many functions ran on `device`.
fn hold<B>(device: &B::Device) -> usize
where
    B: memfit_burn::Backend,
    B::Device: Device<Backend = B>,
{
    let (plain, within) = (functions::<B>(), functions::<Memfit<B>>());
    let mut beside = Beside::default();
    quietly(|| {
        let ways = [Way::Dynamic, Way::Calibrated, Way::Data];
        for case in ways.iter().flat_map(|&way| schemes().into_iter().map(move |scheme| (way, scheme))) {
            for ((name, plain), (_, within)) in plain.iter().zip(&within) {
                let plain = |then: &dyn Fn()| run(plain, case, device, then);
                let within = |then: &dyn Fn()| run(within, case, device, then);
                beside.case(format!("{name} {case:?}"), device, plain, within);
            }
        }
    });
    let copies = beside.copies;
    let (ran, again) = beside.held();
    assert_eq!(copies, 0);
    assert!(again * 3 > ran, "{again} of {ran}");
    ran
}

#[test]
fn every_op_has_the_bits_of_plain_flex() {
    let ran = hold::<Flex>(&FlexDevice);
    assert!(ran > 200, "{ran}");
}

#[cfg(feature = "ndarray")]
#[test]
fn every_op_has_the_bits_of_plain_ndarray() {
    use memfit_burn::{NdArray, NdArrayDevice};

    let ran = hold::<NdArray>(&NdArrayDevice::Cpu);
    assert!(ran > 100, "{ran}");
}

/// Layers of a network whose weights are quantised, the answers to four batches.
fn answers<B: Backend>(device: &B::Device) -> Vec<TensorData> {
    B::seed(device, 5);
    let scheme = schemes()[1];
    let mut quantizer = Quantizer { calibration: Calibration::MinMax, scheme };
    let layers: Vec<Linear<B>> = (0..6)
        .map(|_| LinearConfig::new(64, 64).with_bias(false).init(device).quantize_weights(&mut quantizer))
        .collect();
    let answer = |batch: usize| {
        let mut x = Tensor::<B, 2>::random([32, 64], Distribution::Default, device) + batch as f32;
        for layer in &layers {
            x = layer.forward(x).tanh();
        }
        x.into_data()
    };
    (0..4).map(answer).collect()
}

#[test]
fn a_network_with_quantised_weights_answers_the_same_within_a_budget() {
    let _alone = alone();
    let expected = answers::<Flex>(&FlexDevice);
    enable(&FlexDevice, Budget::UNLIMITED).unwrap();
    assert_eq!(answers::<Memfit<Flex>>(&FlexDevice), expected);
    reset_peak(&FlexDevice);
    // The weights, one of them as floats, and activations that come and go.
    let budget = Budget::of(6 * (64 * 64 + 4) + 4 * 64 * 64 + 3 * 4 * 32 * 64);
    enable(&FlexDevice, budget).unwrap();
    let seen = attempt(&FlexDevice, || answers::<Memfit<Flex>>(&FlexDevice)).unwrap();
    let report = report(&FlexDevice);
    assert_eq!((seen, report.host.missized), (expected, 0));
    assert!(report.engine.peak <= budget.bytes(), "{:?}", report.engine);
}

#[test]
fn a_quantised_tensor_goes_and_comes_back_by_hand() {
    let _alone = alone();
    let options = Options { host: Some(Budget::of(1 << 20)), ..Options::default() };
    for (scheme, moves) in [(schemes()[0], true), (schemes()[2], false)] {
        enable_with(&FlexDevice, options).unwrap();
        let of = numbers::<Memfit<Flex>>(1, &FlexDevice);
        let made = of.clone().quantize_dynamic(&scheme);
        let blocks = if moves { 1 } else { 24 };
        let (used, expected) = (report(&FlexDevice).engine.used.0, made.to_data());
        assert!(evict(&made).unwrap() && !is_resident(&made).unwrap());
        assert_eq!(report(&FlexDevice).engine.used.0, used - 96 - 4 * blocks);
        assert_eq!(made.to_data(), expected);
        let before = report(&FlexDevice).engine.recomputes;
        // With many scales there is no copy, so it stays where it is.
        assert_eq!(swap_out(&made, Tier::Host).unwrap(), moves);
        assert_eq!(is_resident(&made).unwrap(), !moves);
        assert_eq!((made.into_data(), report(&FlexDevice).engine.recomputes), (expected, before));
        drop(of);
    }
}

#[test]
fn quantised_data_of_another_store_is_kept_as_the_backend_keeps_it() {
    let _alone = alone();
    let packed = schemes()[4];
    enable(&FlexDevice, Budget::of(4 << 10)).unwrap();
    let data = numbers::<Flex>(1, &FlexDevice).quantize_dynamic(&packed).into_data();
    let (plain, within) = (
        Tensor::<Flex, 2>::from_data(data.clone(), &FlexDevice),
        Tensor::<Memfit<Flex>, 2>::from_data(data, &FlexDevice),
    );
    assert_eq!((within.dtype(), within.to_data()), (plain.dtype(), plain.to_data()));
    assert_eq!(report(&FlexDevice).engine.used.0, 96 + 4);
    // There is no room for it as floats eleven times.
    let fault = attempt(&FlexDevice, || {
        let held: Vec<_> = (0..11).map(|_| within.clone().dequantize()).collect();
        Tensor::cat(held, 0).into_data()
    });
    assert!(matches!(fault, Err(Fault::NoRoom(_))), "{fault:?}");
    assert_eq!(within.into_data(), plain.into_data());
}

#[test]
fn gradients_do_not_reach_quantised_tensors_as_without_memfit() {
    let (plain, within) = quietly(|| {
        enable(&FlexDevice, Budget::UNLIMITED).unwrap();
        let quantized = schemes()[0];
        let plain = || numbers::<Autodiff<Flex>>(1, &FlexDevice).quantize_dynamic(&quantized).into_data();
        let within =
            || numbers::<Autodiff<Memfit<Flex>>>(1, &FlexDevice).quantize_dynamic(&quantized).into_data();
        (tried(plain), tried(within))
    });
    assert_eq!(plain.is_none(), within.is_none());
}
