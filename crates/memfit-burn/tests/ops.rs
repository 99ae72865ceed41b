//! Each op of Burn's intermediate representation, for each dtype that the backend has, with all that can go evicted before
//! it is read: the same bits as without eviction, and as without memfit.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::cast_possible_wrap,
    reason = "a test"
)]

mod beside;

use beside::{Beside, alone, quietly, tried};
use burn::tensor::backend::Backend;
use burn::tensor::ops::{
    ConvOptions, ConvTransposeOptions, InterpolateMode, InterpolateOptions, UnfoldOptions,
};
use burn::tensor::{
    Bool, DType, Distribution, ElementConversion, FloatDType, IndexingUpdateOp, Int, IntDType, Shape, Tensor,
    TensorData, module, s, signal,
};
use memfit_burn::{Budget, Device, Flex, FlexDevice, Memfit, attempt, enable};

/// A result that is read later.
type Later = Box<dyn FnOnce() -> TensorData + 'static>;
/// Makes results, all of them before any is read.
struct Case<B: Backend> {
    name: String,
    run: Box<dyn Fn(&B::Device) -> Vec<Later>>,
}

/// `later!(a, b)`: results `a` and `b`, to be read when they are called.
macro_rules! later {
    ($($result:expr),+ $(,)?) => {
        vec![$({ let result = $result; Box::new(move || result.into_data()) as Box<dyn FnOnce() -> TensorData> }),+]
    };
}

macro_rules! case {
    ($list:ident, $what:expr, $make:expr, ($($operand:ident),+), $name:literal, $($result:expr),+) => {{
        let (what, make) = ($what, $make.clone());
        $list.push(Case {
            name: format!("{} {what}", $name),
            run: Box::new(move |device| {
                #[allow(unused_variables, reason = "no op reads all operands")]
                let ($($operand),+) = make(device);
                // What is still held is not overwritten: the op can run again.
                let held = ($($operand.clone()),+);
                let mut later = later!($($result),+);
                later.push(Box::new(move || {
                    drop(held);
                    TensorData::from([0])
                }));
                later
            }),
        });
    }};
}

/// A table of ops over operands that are made anew for each: `cases!(list, dtype, operands; name => results, …)`.
macro_rules! cases {
    ($list:ident, $what:expr, $make:expr; $operands:tt $($name:literal => $($result:expr),+;)+) => {
        $(case!($list, $what, $make, $operands, $name, $($result),+);)+
    };
}

const SHAPE: [usize; 2] = [4, 6];

/// Numbers between -1 and 1 and some that lie beyond, with both zeros among them.
fn numbers(count: usize, start: usize) -> Vec<f32> {
    let number = |at: usize| match at % 11 {
        3 => 0.0,
        7 => -0.0,
        9 => 2.5,
        _ => ((at * 37 + start * 5) % 19) as f32 / 10.0 - 0.9,
    };
    (0..count).map(number).collect()
}

fn whole(count: usize, start: usize) -> Vec<i64> {
    (0..count).map(|at| ((at * 7 + start * 3) % 9) as i64 + 1).collect()
}

/// Operands that an op has made, so that they can go too: two floats, a mask, indices.
fn floats<B: Backend>(
    dtype: DType,
) -> impl Fn(&B::Device) -> (Tensor<B, 2>, Tensor<B, 2>, Tensor<B, 2, Bool>, Tensor<B, 1, Int>) + Clone {
    move |device| {
        let make = |start| {
            let data = TensorData::new(numbers(24, start), SHAPE);
            Tensor::<B, 2>::from_data(data, (device, DType::F32)).cast(FloatDType::from(dtype)).mul_scalar(1)
        };
        let (x, y) = (make(1), make(4));
        let mask = x.clone().greater(y.clone());
        (x, y, mask, Tensor::from_data([2, 0, 3], device).add_scalar(0))
    }
}

fn ints<B: Backend>(
    dtype: DType,
) -> impl Fn(&B::Device) -> (Tensor<B, 2, Int>, Tensor<B, 2, Int>, Tensor<B, 2, Bool>, Tensor<B, 1, Int>) + Clone
{
    move |device| {
        let make = |start| {
            let data = TensorData::new(whole(24, start), SHAPE);
            let tensor = Tensor::<B, 2, Int>::from_data(data, (device, DType::I64));
            tensor.cast(IntDType::from(dtype)).mul_scalar(1)
        };
        let (x, y) = (make(1), make(4));
        let mask = x.clone().greater(y.clone());
        (x, y, mask, Tensor::from_data([2, 0, 3], device).add_scalar(0))
    }
}

/// What numbers of both kinds can do.
macro_rules! numeric {
    ($list:ident, $dtype:expr, $make:expr) => {
        cases!($list, $dtype, $make; (x, y, mask, rows)
            "add" => x.add(y);
            "add of itself" => x.clone().add(x);
            "add scalar" => x.add_scalar(2);
            "sub" => x.sub(y);
            "sub scalar" => x.sub_scalar(2);
            "mul" => x.mul(y);
            "mul scalar" => x.mul_scalar(3);
            "div" => x.div(y.abs().add_scalar(1));
            "div scalar" => x.div_scalar(2);
            "remainder" => x.remainder(y.abs().add_scalar(1));
            "remainder scalar" => x.remainder_scalar(2);
            "neg" => x.neg();
            "sign" => x.sign();
            "abs" => x.abs();
            "powi" => x.powi(y.abs());
            "powi scalar" => x.powi_scalar(3);
            "sum" => x.sum();
            "sum dim" => x.sum_dim(1);
            "mean" => x.mean();
            "mean dim" => x.mean_dim(0);
            "prod" => x.slice([0..2, 0..2]).prod();
            "prod dim" => x.prod_dim(0);
            "cumsum" => x.cumsum(1);
            "cumprod" => x.cumprod(0);
            "cummin" => x.cummin(1);
            "cummax" => x.cummax(0);
            "max" => x.max();
            "max dim" => x.max_dim(1);
            "max abs" => x.max_abs();
            "max abs dim" => x.max_abs_dim(0);
            "min" => x.min();
            "min dim" => x.min_dim(0);
            "argmax" => x.argmax(1);
            "argmin" => x.argmin(0);
            "topk" => x.topk(2, 1);
            "argtopk" => x.argtopk(2, 1);
            "clamp" => x.clamp(1, 2);
            "matmul" => x.matmul(y.transpose());
            "equal" => x.equal(y);
            "equal scalar" => x.equal_elem(1);
            "greater" => x.greater(y);
            "greater scalar" => x.greater_elem(1);
            "greater or equal" => x.greater_equal(y);
            "greater or equal scalar" => x.greater_equal_elem(1);
            "lower" => x.lower(y);
            "lower scalar" => x.lower_elem(1);
            "lower or equal" => x.lower_equal(y);
            "lower or equal scalar" => x.lower_equal_elem(1);
            "max with indices" => x.clone().max_dim_with_indices(1).0, x.max_dim_with_indices(1).1;
            "min with indices" => x.clone().min_dim_with_indices(1).0, x.min_dim_with_indices(1).1;
            "sort" => x.sort(1);
            "reshape" => x.reshape([3, 8]);
            "reshape of a view" => x.transpose().reshape([3, 8]);
            "swap dims" => x.swap_dims(0, 1);
            "permute" => x.permute([1, 0]);
            "flip" => x.flip([1]);
            "expand" => x.unsqueeze::<3>().expand([3, 4, 6]);
            "unfold" => x.unfold::<3, _>(1, 3, 2);
            "slice" => x.slice([1..3, 2..5]);
            "slice with steps" => x.slice(s![0..4;2, 1..6]);
            "slice assign" => x.slice_assign([1..3, 2..5], y.slice([0..2, 0..3]));
            "select" => x.select(0, rows);
            "select assign" => x.select_assign(0, rows, y.slice([0..3, 0..6]), IndexingUpdateOp::Add);
            "mask where" => x.mask_where(mask, y);
            "mask fill" => x.mask_fill(mask, 7);
            "gather" => x.gather(0, Tensor::zeros([2, 6], &rows.device()));
            "scatter" => {
                let into = Tensor::ones([2, 6], &rows.device());
                x.scatter(0, into, y.slice([0..2, 0..6]), IndexingUpdateOp::Add)
            };
            "repeat" => x.repeat_dim(0, 3);
            "cat" => Tensor::cat(vec![x.clone(), y, x], 1);
            "zeros" => Tensor::zeros_like(&x);
            "ones" => Tensor::ones_like(&x);
            "full" => x.full_like(3);
            "split" => x.clone().slice([0..4, 0..3]), x.slice([0..4, 3..6]);
            "to bool" => x.bool();
            "argsort" => x.argsort(1);
            "argsort descending" => x.argsort_descending(0);
            "sort descending" => x.sort_descending(0);
            "sort with indices" => x.clone().sort_with_indices(1).0, x.sort_with_indices(1).1;
            "clamp min" => x.clamp_min(1);
            "clamp max" => x.clamp_max(1);
            "not equal" => x.not_equal(y);
            "not equal scalar" => x.not_equal_elem(1);
            "any" => x.any();
            "any dim" => x.any_dim(1);
            "all" => x.all();
            "all dim" => x.all_dim(0);
        );
    };
}

fn float_cases<B: Backend>(list: &mut Vec<Case<B>>, dtype: DType) {
    let (make, what) = (floats::<B>(dtype), format!("{dtype:?}"));
    numeric!(list, what.clone(), make);
    cases!(list, what.clone(), make; (x, y, mask, rows)
        "exp" => x.exp();
        "log" => x.abs().log();
        "log1p" => x.log1p();
        "erf" => x.erf();
        "powf" => x.abs().powf(y);
        "powf scalar" => x.abs().powf_scalar(1.7);
        "sqrt" => x.sqrt();
        "cos" => x.cos();
        "cosh" => x.cosh();
        "sin" => x.sin();
        "sinh" => x.sinh();
        "tan" => x.tan();
        "tanh" => x.tanh();
        "acos" => x.acos();
        "acosh" => x.acosh();
        "asin" => x.asin();
        "asinh" => x.asinh();
        "atan" => x.atan();
        "atanh" => x.atanh();
        "atan2" => x.atan2(y);
        "round" => x.round();
        "floor" => x.floor();
        "ceil" => x.ceil();
        "trunc" => x.trunc();
        "recip" => x.recip();
        "is nan" => x.log().is_nan();
        "is inf" => x.recip().is_inf();
        "to int" => x.int();
        "to f64" => x.cast(FloatDType::F64);
        "to f16" => x.cast(FloatDType::F16);
        "to bf16" => x.cast(FloatDType::BF16);
        "cross" => x.slice([0..4, 0..3]).cross(y.slice([0..4, 0..3]), 1);
        "random" => x.random_like(Distribution::Default);
        "random normal" => x.random_like(Distribution::Normal(0.0, 1.0));
        "random mask" => x.random_like(Distribution::Bernoulli(0.4));
        "embedding" => module::embedding(x, rows.reshape([1, 3]));
        "conv1d" => {
            let (x, weight) = (x.reshape([2, 2, 6]), y.slice([0..2, 0..6]).reshape([2, 2, 3]));
            module::conv1d(x, weight, None, ConvOptions::new([1], [1], [1], 1))
        };
        "conv2d" => {
            let (x, weight) = (x.reshape([1, 2, 3, 4]), y.slice([0..4, 0..4]).reshape([2, 2, 2, 2]));
            module::conv2d(x, weight, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1))
        };
        "conv3d" => {
            let (x, weight) = (x.reshape([1, 1, 2, 3, 4]), y.slice([0..2, 0..4]).reshape([1, 1, 2, 2, 2]));
            module::conv3d(x, weight, None, ConvOptions::new([1; 3], [0; 3], [1; 3], 1))
        };
        "transposed conv1d" => {
            let (x, weight) = (x.reshape([2, 2, 6]), y.slice([0..2, 0..6]).reshape([2, 2, 3]));
            module::conv_transpose1d(x, weight, None, ConvTransposeOptions::new([2], [1], [0], [1], 1))
        };
        "transposed conv2d" => {
            let (x, weight) = (x.reshape([1, 2, 3, 4]), y.slice([0..4, 0..4]).reshape([2, 2, 2, 2]));
            module::conv_transpose2d(x, weight, None, ConvTransposeOptions::new([2; 2], [1; 2], [0; 2], [1; 2], 1))
        };
        "max pool 1d" => module::max_pool1d(x.reshape([1, 4, 6]), 2, 2, 0, 1, false);
        "max pool 2d" => module::max_pool2d(x.reshape([1, 1, 4, 6]), [2; 2], [2; 2], [0; 2], [1; 2], false);
        "max pool 2d with indices" => {
            module::max_pool2d_with_indices(x.clone().reshape([1, 1, 4, 6]), [2; 2], [2; 2], [0; 2], [1; 2], false).0
        }, {
            module::max_pool2d_with_indices(x.reshape([1, 1, 4, 6]), [2; 2], [2; 2], [0; 2], [1; 2], false).1
        };
        "mean pool 1d" => module::avg_pool1d(x.reshape([1, 4, 6]), 2, 2, 0, true, false);
        "mean pool 2d" => module::avg_pool2d(x.reshape([1, 1, 4, 6]), [2; 2], [2; 2], [1; 2], true, false);
        "adaptive mean pool 1d" => module::adaptive_avg_pool1d(x.reshape([1, 4, 6]), 3);
        "adaptive mean pool 2d" => module::adaptive_avg_pool2d(x.reshape([1, 1, 4, 6]), [2, 3]);
        "unfold 4d" => module::unfold4d(x.reshape([1, 1, 4, 6]), [2, 2], UnfoldOptions::new([1; 2], [0; 2], [1; 2]));
        "interpolate" => {
            module::interpolate(x.reshape([1, 1, 4, 6]), [8, 9], InterpolateOptions::new(InterpolateMode::Bilinear))
        };
        "rfft" => signal::rfft(x.clone().slice([0..4, 0..4]), 1, None).0, signal::rfft(x.slice([0..4, 0..4]), 1, None).1;
        "rfft of eight" => signal::rfft(x.clone(), 1, Some(8)).0, signal::rfft(x, 1, Some(8)).1;
        "irfft" => signal::irfft(x.slice([0..4, 0..5]), y.slice([0..4, 0..5]), 1, None);
    );
}

fn int_cases<B: Backend>(list: &mut Vec<Case<B>>, dtype: DType) {
    let (make, what) = (ints::<B>(dtype), format!("{dtype:?}"));
    numeric!(list, what.clone(), make);
    cases!(list, what.clone(), make; (x, y, mask, rows)
        "bitwise and" => x.bitwise_and(y);
        "bitwise and scalar" => x.bitwise_and_scalar(5.elem());
        "bitwise or" => x.bitwise_or(y);
        "bitwise or scalar" => x.bitwise_or_scalar(5.elem());
        "bitwise xor" => x.bitwise_xor(y);
        "bitwise xor scalar" => x.bitwise_xor_scalar(5.elem());
        "bitwise not" => x.bitwise_not();
        "left shift" => x.bitwise_left_shift(y.remainder_scalar(4));
        "left shift scalar" => x.bitwise_left_shift_scalar(2.elem());
        "right shift" => x.bitwise_right_shift(y.remainder_scalar(4));
        "right shift scalar" => x.bitwise_right_shift_scalar(1.elem());
        "to float" => x.float();
        "to i32" => x.cast(IntDType::I32);
        "to i64" => x.cast(IntDType::I64);
        "random" => Tensor::<B, 2, Int>::random(SHAPE, Distribution::Uniform(0.0, 50.0), &x.device());
        "range" => Tensor::<B, 1, Int>::arange(3..17, &x.device());
        "range with steps" => Tensor::<B, 1, Int>::arange_step(-3..17, 3, &x.device());
    );
}

fn bool_cases<B: Backend>(list: &mut Vec<Case<B>>) {
    let make = |device: &B::Device| {
        let (x, y, mask, rows) = floats::<B>(DType::F32)(device);
        (mask, x.greater(y.neg()), rows)
    };
    cases!(list, "bool", make; (x, y, rows)
        "not" => x.bool_not();
        "and" => x.bool_and(y);
        "or" => x.bool_or(y);
        "xor" => x.bool_xor(y);
        "equal" => x.equal(y);
        "not equal" => x.not_equal(y);
        "equal scalar" => x.equal_elem(true);
        "not equal scalar" => x.not_equal_elem(true);
        "where" => x.argwhere();
        "to int" => x.int();
        "to float" => x.float();
        "any" => x.any();
        "any dim" => x.any_dim(1);
        "all" => x.all();
        "all dim" => x.all_dim(0);
        "reshape" => x.reshape([3, 8]);
        "swap dims" => x.swap_dims(0, 1);
        "permute" => x.permute([1, 0]);
        "flip" => x.flip([0]);
        "expand" => x.unsqueeze::<3>().expand([3, 4, 6]);
        "unfold" => x.unfold::<3, _>(1, 3, 2);
        "slice" => x.slice([1..3, 2..5]);
        "slice assign" => x.slice_assign([1..3, 2..5], y.slice([0..2, 0..3]));
        "select" => x.select(0, rows);
        "mask where" => x.clone().mask_where(y, x.bool_not());
        "mask fill" => x.mask_fill(y, true);
        "gather" => x.gather(0, Tensor::zeros([2, 6], &rows.device()));
        "repeat" => x.repeat_dim(1, 2);
        "cat" => Tensor::cat(vec![x.clone(), y, x], 0);
        "zeros" => Tensor::zeros_like(&x);
        "ones" => Tensor::ones_like(&x);
        "empty and filled" => Tensor::<B, 2, Bool>::empty(Shape::new([0, 3]), &rows.device());
    );
}

fn all<B: Backend>() -> Vec<Case<B>> {
    let mut list = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        float_cases(&mut list, dtype);
    }
    for dtype in [DType::I64, DType::I32, DType::I16, DType::I8] {
        int_cases(&mut list, dtype);
    }
    bool_cases(&mut list);
    list
}

fn run<B: Backend>(case: &Case<B>, device: &B::Device, before_reading: impl Fn()) -> Option<Vec<TensorData>> {
    tried(|| {
        B::seed(device, 11);
        let later = (case.run)(device);
        before_reading();
        later.into_iter().map(|read| read()).collect()
    })
}

/// How many ops ran on `device`, and how many of them again.
fn hold<B>(device: &B::Device) -> (usize, usize)
where
    B: memfit_burn::Backend,
    B::Device: Device<Backend = B>,
{
    let mut beside = Beside::default();
    quietly(|| {
        for (plain, within) in all::<B>().iter().zip(&all::<Memfit<B>>()) {
            assert_eq!(plain.name, within.name);
            let what = plain.name.clone();
            beside.case(what, device, |then| run(plain, device, then), |then| run(within, device, then));
        }
    });
    beside.held()
}

#[test]
fn every_op_has_the_bits_of_plain_flex_and_comes_back_to_them() {
    let (ran, repeated) = hold::<Flex>(&FlexDevice);
    assert!(ran > 800 && repeated > 700, "{ran} {repeated}");
}

#[cfg(feature = "ndarray")]
#[test]
fn every_op_has_the_bits_of_plain_ndarray_and_comes_back_to_them() {
    use memfit_burn::{NdArray, NdArrayDevice};

    let (ran, repeated) = hold::<NdArray>(&NdArrayDevice::Cpu);
    assert!(ran > 650 && repeated > 630, "{ran} {repeated}");
}

#[test]
fn unsigned_integers_are_refused_by_name() {
    let _alone = alone();
    let device = FlexDevice;
    for dtype in [IntDType::U64, IntDType::U32, IntDType::U16, IntDType::U8] {
        enable(&device, Budget::UNLIMITED).unwrap();
        let tensor = Tensor::<Memfit<Flex>, 1, Int>::from_data([1, 2, 3], &device);
        let fault = attempt(&device, || tensor.clone().cast(dtype)).unwrap_err();
        assert!(fault.to_string().contains("unsigned integers"), "{fault}");
        // Nothing is lost by it.
        assert_eq!(tensor.into_data(), TensorData::from([1, 2, 3]));
    }
}
