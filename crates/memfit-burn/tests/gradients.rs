//! Whatever a network is made of: outputs and gradients have the bits of the plain backend, with all that can go evicted
//! before the backward pass too, in each type that the backend has.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "a test")]

mod beside;

use beside::{Beside, quietly, tried};
use burn::backend::Autodiff;
use burn::tensor::activation as act;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::{
    AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions, GridSampleOptions,
    InterpolateMode, InterpolateOptions,
};
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData, module, signal};
use memfit_burn::{Device, Flex, FlexDevice, Memfit};

type Function<A> = Box<dyn Fn(Tensor<A, 2>, Tensor<A, 2>) -> Tensor<A, 1>>;

macro_rules! functions {
    ($x:ident, $y:ident: $($name:literal => $result:expr;)*) => {
        vec![$(($name, Box::new(|$x: Tensor<A, 2>, $y: Tensor<A, 2>| {
            let _ = &$y;
            $result.reshape([-1])
        }) as Function<A>)),*]
    };
}

/// Of two tensors of 8 × 12.
fn functions<A: AutodiffBackend>() -> Vec<(&'static str, Function<A>)> {
    let mut list = activations::<A>();
    list.extend(shapes::<A>());
    list.extend(functions! { x, y:
        "embedding" => module::embedding(x.clone(), Tensor::<A, 2, Int>::from_data([[3, 0], [3, 7]], &x.device()));
        "linear" => module::linear(x, y.slice(0..5).transpose(), None);
        "matmul" => x.clone().matmul(y.transpose()).matmul(x);
        "attention" => module::attention(
            x.clone().reshape([1, 2, 4, 12]), y.clone().reshape([1, 2, 4, 12]), (x + y).reshape([1, 2, 4, 12]), None, None,
            AttentionModuleOptions::default(),
        );
        "conv1d" => module::conv1d(x.reshape([2, 4, 12]), y.reshape([8, 4, 3]), None, ConvOptions::new([1], [1], [1], 1));
        "conv2d" => {
            module::conv2d(x.reshape([1, 2, 8, 6]), y.reshape([4, 2, 3, 4]), None, ConvOptions::new([2, 1], [1, 2], [1; 2], 1))
        };
        "conv2d in groups" => {
            module::conv2d(x.reshape([1, 4, 4, 6]), y.slice(0..6).reshape([4, 2, 3, 3]), None, ConvOptions::new([1; 2], [1; 2], [1; 2], 2))
        };
        "conv1d with a rest" => module::conv1d(x.reshape([2, 4, 12]), y.reshape([8, 4, 3]), None, ConvOptions::new([2], [0], [1], 1));
        "conv2d with a rest" => {
            module::conv2d(x.reshape([1, 2, 8, 6]), y.reshape([4, 2, 3, 4]), None, ConvOptions::new([2, 3], [1, 0], [1, 1], 1))
        };
        "conv2d in groups with a rest" => {
            module::conv2d(x.reshape([1, 4, 4, 6]), y.slice(0..6).reshape([4, 2, 3, 3]), None, ConvOptions::new([2; 2], [1; 2], [1; 2], 2))
        };
        "conv3d with a rest" => {
            module::conv3d(x.reshape([1, 2, 4, 4, 3]), y.reshape([6, 2, 2, 2, 2]), None, ConvOptions::new([3, 2, 2], [1, 0, 0], [1; 3], 1))
        };
        "conv3d" => {
            module::conv3d(x.reshape([1, 2, 4, 4, 3]), y.reshape([6, 2, 2, 2, 2]), None, ConvOptions::new([1; 3], [0; 3], [1; 3], 1))
        };
        "transposed conv1d" => module::conv_transpose1d(
            x.reshape([2, 4, 12]), y.reshape([4, 8, 3]), None, ConvTransposeOptions::new([2], [1], [1], [1], 1),
        );
        "transposed conv2d" => module::conv_transpose2d(
            x.reshape([1, 2, 8, 6]), y.reshape([2, 4, 3, 4]), None, ConvTransposeOptions::new([2; 2], [1; 2], [0; 2], [1; 2], 1),
        );
        "transposed conv3d" => module::conv_transpose3d(
            x.reshape([1, 2, 4, 4, 3]), y.reshape([2, 6, 2, 2, 2]), None, ConvTransposeOptions::new([1; 3], [0; 3], [0; 3], [1; 3], 1),
        );
        "deformable conv2d" => {
            let offset = Tensor::cat(vec![x.clone(), y.clone(), x.clone()], 0).reshape([-1]).slice(0..280).reshape([1, 8, 7, 5]);
            let weight = y.slice([0..2, 0..8]).reshape([2, 2, 2, 2]);
            let options = DeformConvOptions::new([1; 2], [0; 2], [1; 2], 1, 1);
            module::deform_conv2d(x.reshape([1, 2, 8, 6]), offset, weight, None, None, options)
        };
        "mean pool 1d" => module::avg_pool1d(x.reshape([2, 4, 12]), 3, 2, 1, false, false);
        "mean pool 2d" => module::avg_pool2d(x.reshape([1, 2, 8, 6]), [3; 2], [2; 2], [1; 2], true, false);
        "adaptive mean pool 2d" => module::adaptive_avg_pool2d(x.reshape([1, 2, 8, 6]), [3, 2]);
        "max pool 1d" => module::max_pool1d(x.reshape([2, 4, 12]), 3, 2, 1, 1, false);
        "max pool 2d" => module::max_pool2d(x.reshape([1, 2, 8, 6]), [2; 2], [2; 2], [0; 2], [1; 2], false);
        "interpolate" => {
            module::interpolate(x.reshape([1, 2, 8, 6]), [12, 9], InterpolateOptions::new(InterpolateMode::Bilinear))
        };
        "nearest" => {
            module::interpolate(x.reshape([1, 2, 8, 6]), [16, 12], InterpolateOptions::new(InterpolateMode::Nearest))
        };
        "grid sample" => {
            let grid = y.slice([0..5, 0..8]).reshape([1, 5, 4, 2]).tanh();
            x.reshape([1, 2, 8, 6]).grid_sample_2d(grid, GridSampleOptions::default())
        };
        "rfft" => { let (re, im) = signal::rfft(x.reshape([12, 8]), 1, None); re * 2 + im };
    });
    list
}

fn activations<A: AutodiffBackend>() -> Vec<(&'static str, Function<A>)> {
    functions! { x, y:
        "relu" => act::relu(x);
        "leaky relu" => act::leaky_relu(x, 0.1);
        "gelu" => act::gelu(x);
        "gelu by tanh" => act::gelu_approximate(x);
        "prelu" => act::prelu(x, y.slice([0..1, 0..12]).reshape([12]));
        "softmax" => act::softmax(x, 1) * y;
        "softmin" => act::softmin(x, 0) * y;
        "softplus" => act::softplus(x, 1.5);
        "quiet softmax" => act::quiet_softmax(x, 1) * y;
        "log softmax" => act::log_softmax(x, 1) * y;
        "sigmoid" => act::sigmoid(x);
        "hard sigmoid" => act::hard_sigmoid(x, 0.2, 0.5);
        "log sigmoid" => act::log_sigmoid(x);
        "silu" => act::silu(x);
        "hard swish" => act::hard_swish(x);
        "mish" => act::mish(x);
        "tanh" => act::tanh(x);
        "elu" => act::elu(x, 0.7);
        "celu" => act::celu(x, 0.7);
        "selu" => act::selu(x);
        "glu" => act::glu(x, 1);
        "softsign" => act::softsign(x);
        "soft shrink" => act::soft_shrink(x, 0.3);
    }
}

fn shapes<A: AutodiffBackend>() -> Vec<(&'static str, Function<A>)> {
    functions! { x, y:
        "add and mul" => (x.clone() + y.clone()) * x - y;
        "broadcast" => x.clone().sum_dim(1) * y + x;
        "div" => x / (y.abs() + 1.5);
        "remainder" => x.remainder(y.abs() + 0.7);
        "sign" => x.clone().sign() * x * y;
        "neg" => x.neg() * y;
        "clamp" => x.clamp(-0.5, 0.5) * y;
        "clamp min" => x.clamp_min(-0.2) * y;
        "clamp max" => x.clamp_max(0.3) * y;
        "square" => x.clone().powi_scalar(2) + x.powi_scalar(3);
        "powf scalar" => (x.abs() + 0.1).powf_scalar(1.7);
        "powf" => (x.abs() + 0.1).powf(y);
        "exp and log" => (x.exp() + 1.0).log() + y.abs().log1p();
        "sqrt and recip" => (x.abs() + 0.1).sqrt().recip() * y;
        "sines" => x.clone().sin() + x.clone().cos() + x.clone().tanh() + x.erf();
        "mean and var" => { let (var, mean) = x.clone().var_mean(1); (x - mean) / (var + 1e-5).sqrt() * y };
        "max" => x.max_dim(1) * y.clone() + y.min().reshape([1, 1]);
        "max abs" => x.max_abs_dim(1) * y;
        "prod" => x.slice([0..3, 0..4]).prod_dim(1);
        "cumulated" => x.clone().cumsum(1) + y.cumprod(0) + x.cummax(1);
        "sort" => x.sort(1) * y;
        "sort descending" => x.sort_descending(0) * y;
        "topk" => x.topk(3, 1);
        "sorted with indices" => { let (values, at) = x.sort_with_indices(1); values * at.float() * y };
        "argsort" => x.clone().argsort(1).float() * x * y;
        "mask" => x.clone().mask_where(x.clone().greater(y.clone()), y).mask_fill(x.not_equal_elem(0.5), 2.0);
        "any and all" => x.clone().greater_elem(0.0).any_dim(1).float() * x.clone() + x.equal_elem(0.0).all().float().reshape([1, 1]);
        "nan and inf" => x.clone().log().is_nan().float() * x.clone() + x.recip().is_inf().float();
        "views" => x.transpose().reshape([8, 12]).flip([1]).swap_dims(0, 1).reshape([8, 12]) * y;
        "slices" => { let a = x.clone().slice([1..6, 2..9]); x.slice_assign([0..5, 3..10], a) * y };
        "cat and repeat" => Tensor::cat(vec![x.clone(), y, x], 0).repeat_dim(1, 2);
        "select" => { let rows = Tensor::<A, 1, Int>::from_data([5, 1, 1, 0], &x.device()); x.select(0, rows) };
        "gather" => { let at = Tensor::<A, 1, Int>::arange(0..8, &x.device()).reshape([8, 1]); x.gather(1, at) * y };
        "random" => x.clone() * x.random_like(burn::tensor::Distribution::Default);
    }
}

/// Numbers between -1 and 1, both zeros and some ties among them.
fn numbers<A: AutodiffBackend>(start: usize, dtype: DType, device: &A::Device) -> Tensor<A, 2> {
    let number = |at: usize| match at % 17 {
        3 => 0.0,
        7 => -0.0,
        11 => 0.5,
        _ => ((at * 37 + start * 5) % 101) as f32 / 50.0 - 1.0,
    };
    let data = TensorData::new((0..96).map(number).collect::<Vec<f32>>(), [8, 12]);
    Tensor::<A, 2>::from_data(data, (device, DType::F32))
        .cast(FloatDType::from(dtype))
        .detach()
        .require_grad()
}

/// What a function makes of two tensors, and their gradients.
fn run<A: AutodiffBackend>(
    function: &Function<A>,
    dtype: DType,
    device: &A::Device,
    between: impl Fn(),
) -> Option<Vec<TensorData>> {
    tried(|| {
        A::seed(device, 5);
        let (x, y) = (numbers::<A>(1, dtype, device), numbers::<A>(4, dtype, device));
        // Beside their last use here, so that they are made once more by ops of the backend.
        let made = function(x.clone() * 1.25, y.clone() + 0.0625);
        let loss = (made.clone() * made.clone() * 0.5).sum();
        between();
        let gradients = loss.backward();
        between();
        let gradient = |tensor: &Tensor<A, 2>| tensor.grad(&gradients).map(Tensor::into_data);
        let gradients = [gradient(&x), gradient(&y)].into_iter().flatten();
        [made.into_data()].into_iter().chain(gradients).collect()
    })
}

/// How many functions ran on `device`, and how many of them with repetitions.
fn hold<B>(device: &B::Device) -> (usize, usize)
where
    B: memfit_burn::Backend,
    B::Device: Device<Backend = B>,
{
    let (plain, within) = (functions::<Autodiff<B>>(), functions::<Autodiff<Memfit<B>>>());
    let mut beside = Beside::default();
    quietly(|| {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for ((name, plain), (_, within)) in plain.iter().zip(&within) {
                let plain = |then: &dyn Fn()| run(plain, dtype, device, then);
                let within = |then: &dyn Fn()| run(within, dtype, device, then);
                beside.case(format!("{name} {dtype:?}"), device, plain, within);
            }
        }
    });
    beside.held()
}

#[test]
fn outputs_and_gradients_have_the_bits_of_plain_flex() {
    let (ran, repeated) = hold::<Flex>(&FlexDevice);
    assert!(ran > 280 && repeated > 260, "{ran} {repeated}");
}

#[cfg(feature = "ndarray")]
#[test]
fn outputs_and_gradients_have_the_bits_of_plain_ndarray() {
    use memfit_burn::{NdArray, NdArrayDevice};

    let (ran, repeated) = hold::<NdArray>(&NdArrayDevice::Cpu);
    assert!(ran > 140 && repeated > 140, "{ran} {repeated}");
}
