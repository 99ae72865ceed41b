//! The backend that programs name: what Burn's router records as one op goes through it, what it would take apart is an op
//! of our own ([`super::own`]), and what is read is read as it is.

use std::marker::PhantomData;
use std::ops::Range;

use burn_backend::ops::*;
use burn_backend::quantization::QuantScheme;
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{
    BackendTypes, BoolDType, DType, DTypeUsageSet, Distribution, ExecutionError, FloatDType, IntDType,
    Scalar, Shape, Slice, TensorData, TensorMetadata,
};
use burn_router::{BackendRouter, RunnerClient as _};

use super::backend::Backend;
use super::channel::{MemfitChannel, client};
use super::own::{
    self, Bool, Call, Float, Int, Kind, Made, Quantized, T, creations, lent_methods, methods, own,
};
use super::quantized::{Lent, Scales};
use super::turn::turn;
use super::weight_gradient::{is_sliced, weight_gradients};

/// Burn's own router over memfit.
type Router<B> = BackendRouter<MemfitChannel<B>>;

/// The backend `B` within a budget: put `Autodiff<Memfit<B>>` where `Autodiff<B>` was.
pub struct Memfit<B>(PhantomData<fn() -> B>);

impl<B> Clone for Memfit<B> {
    fn clone(&self) -> Self {
        Memfit(PhantomData)
    }
}

impl<B> Default for Memfit<B> {
    fn default() -> Self {
        Memfit(PhantomData)
    }
}

impl<B> std::fmt::Debug for Memfit<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memfit")
    }
}

impl<B: Backend> BackendTypes for Memfit<B> {
    type Device = B::Device;
    type FloatTensorPrimitive = T<B>;
    type FloatElem = B::FloatElem;
    type IntTensorPrimitive = T<B>;
    type IntElem = B::IntElem;
    type BoolTensorPrimitive = T<B>;
    type BoolElem = B::BoolElem;
    type QuantizedTensorPrimitive = T<B>;
}

impl<B: Backend> burn_backend::Backend for Memfit<B> {
    fn name(device: &B::Device) -> String {
        format!("memfit<{}>", B::name(device))
    }

    fn seed(device: &B::Device, seed: u64) {
        Router::<B>::seed(device, seed);
    }

    fn sync(device: &B::Device) -> Result<(), ExecutionError> {
        Router::<B>::sync(device)
    }

    fn dtype_usage(device: &B::Device, dtype: DType) -> DTypeUsageSet {
        B::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        B::device_count(type_id)
    }
}

/// Methods that go through Burn's router.
macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {$(
        fn $name($($arg: $ty),*) -> $out {
            let _turn = turn();
            Router::<B>::$name($($arg),*)
        }
    )*};
}

/// The same where what is made is a record whose type names the backend.
macro_rules! forward_records {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ident { $($field:ident),* };)*) => {$(
        fn $name($($arg: $ty),*) -> $out<Self> {
            let _turn = turn();
            let made = Router::<B>::$name($($arg),*);
            $out { $($field: made.$field),* }
        }
    )*};
}

/// The bytes of a tensor as they are: the router would turn them into the default type.
async fn read<B: Backend>(tensor: T<B>) -> Result<TensorData, ExecutionError> {
    let data = {
        let _turn = turn();
        tensor.client.clone().read_tensor_async(tensor.into_ir())
    };
    data.await
}

impl<B: Backend> TransactionOps<Self> for Memfit<B> {}

impl<B: Backend> ActivationOps<Self> for Memfit<B> {
    own!(activation, methods);
}

impl<B: Backend> FloatTensorOps<Self> for Memfit<B> {
    async fn float_into_data(tensor: T<B>) -> Result<TensorData, ExecutionError> {
        read(tensor).await
    }

    own!(float, methods);
    forward! {
        float_from_data(data: TensorData, device: &B::Device) -> T<B>;
        float_random(shape: Shape, distribution: Distribution, device: &B::Device, dtype: FloatDType) -> T<B>;
        float_zeros(shape: Shape, device: &B::Device, dtype: FloatDType) -> T<B>;
        float_ones(shape: Shape, device: &B::Device, dtype: FloatDType) -> T<B>;
        float_full(shape: Shape, fill_value: Scalar, device: &B::Device, dtype: FloatDType) -> T<B>;
        float_device(tensor: &T<B>) -> B::Device;
        float_to_device(tensor: T<B>, device: &B::Device) -> T<B>;
        float_into_int(tensor: T<B>, out_dtype: IntDType) -> T<B>;
        float_empty(shape: Shape, device: &B::Device, dtype: FloatDType) -> T<B>;
        float_repeat_dim(tensor: T<B>, dim: usize, times: usize) -> T<B>;
        float_add(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_add_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        float_clamp(tensor: T<B>, min: Scalar, max: Scalar) -> T<B>;
        float_sub(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_sub_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        float_mul(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_mul_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        float_div(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_div_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        float_remainder(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_remainder_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        float_matmul(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_cross(lhs: T<B>, rhs: T<B>, dim: usize) -> T<B>;
        float_recip(tensor: T<B>) -> T<B>;
        float_swap_dims(tensor: T<B>, dim1: usize, dim2: usize) -> T<B>;
        float_permute(tensor: T<B>, axes: &[usize]) -> T<B>;
        float_flip(tensor: T<B>, axes: &[usize]) -> T<B>;
        float_reshape(tensor: T<B>, shape: Shape) -> T<B>;
        float_gather(dim: usize, tensor: T<B>, indices: T<B>) -> T<B>;
        float_scatter_add(dim: usize, tensor: T<B>, indices: T<B>, value: T<B>) -> T<B>;
        float_scatter_nd(data: T<B>, indices: T<B>, values: T<B>, reduction: IndexingUpdateOp) -> T<B>;
        float_gather_nd(data: T<B>, indices: T<B>) -> T<B>;
        float_select(tensor: T<B>, dim: usize, indices: T<B>) -> T<B>;
        float_select_add(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>) -> T<B>;
        float_slice(tensor: T<B>, slices: &[Slice]) -> T<B>;
        float_slice_assign(tensor: T<B>, slices: &[Slice], value: T<B>) -> T<B>;
        float_mask_where(tensor: T<B>, mask: T<B>, value: T<B>) -> T<B>;
        float_mask_fill(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B>;
        float_equal(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        float_equal_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        float_greater(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        float_greater_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        float_greater_equal(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        float_greater_equal_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        float_lower(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        float_lower_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        float_lower_equal(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        float_lower_equal_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        float_sum(tensor: T<B>) -> T<B>;
        float_sum_dim(tensor: T<B>, dim: usize) -> T<B>;
        float_prod(tensor: T<B>) -> T<B>;
        float_prod_dim(tensor: T<B>, dim: usize) -> T<B>;
        float_mean(tensor: T<B>) -> T<B>;
        float_mean_dim(tensor: T<B>, dim: usize) -> T<B>;
        float_cumsum(tensor: T<B>, dim: usize) -> T<B>;
        float_cumprod(tensor: T<B>, dim: usize) -> T<B>;
        float_cummin(tensor: T<B>, dim: usize) -> T<B>;
        float_cummax(tensor: T<B>, dim: usize) -> T<B>;
        float_cast(tensor: T<B>, dtype: FloatDType) -> T<B>;
        float_exp(tensor: T<B>) -> T<B>;
        float_log(tensor: T<B>) -> T<B>;
        float_log1p(tensor: T<B>) -> T<B>;
        float_powf(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_powi(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_powi_scalar_impl(lhs: T<B>, rhs: Scalar) -> T<B>;
        float_powf_scalar_impl(tensor: T<B>, value: Scalar) -> T<B>;
        float_sqrt(tensor: T<B>) -> T<B>;
        float_abs(tensor: T<B>) -> T<B>;
        float_cos(tensor: T<B>) -> T<B>;
        float_sin(tensor: T<B>) -> T<B>;
        float_tan(tensor: T<B>) -> T<B>;
        float_cosh(tensor: T<B>) -> T<B>;
        float_sinh(tensor: T<B>) -> T<B>;
        float_tanh(tensor: T<B>) -> T<B>;
        float_acos(tensor: T<B>) -> T<B>;
        float_acosh(tensor: T<B>) -> T<B>;
        float_asin(tensor: T<B>) -> T<B>;
        float_asinh(tensor: T<B>) -> T<B>;
        float_atan(tensor: T<B>) -> T<B>;
        float_atanh(tensor: T<B>) -> T<B>;
        float_atan2(lhs: T<B>, rhs: T<B>) -> T<B>;
        float_round(tensor: T<B>) -> T<B>;
        float_floor(tensor: T<B>) -> T<B>;
        float_ceil(tensor: T<B>) -> T<B>;
        float_trunc(tensor: T<B>) -> T<B>;
        float_erf(tensor: T<B>) -> T<B>;
        float_cat(tensors: Vec<T<B>>, dim: usize) -> T<B>;
        float_argmax(tensor: T<B>, dim: usize, out_dtype: IntDType) -> T<B>;
        float_argtopk(tensor: T<B>, dim: usize, k: usize, out_dtype: IntDType) -> T<B>;
        float_topk(tensor: T<B>, dim: usize, k: usize) -> T<B>;
        float_argmin(tensor: T<B>, dim: usize, out_dtype: IntDType) -> T<B>;
        float_max(tensor: T<B>) -> T<B>;
        float_max_dim(tensor: T<B>, dim: usize) -> T<B>;
        float_max_dim_with_indices(tensor: T<B>, dim: usize, indices_dtype: IntDType) -> (T<B>, T<B>);
        float_min(tensor: T<B>) -> T<B>;
        float_min_dim(tensor: T<B>, dim: usize) -> T<B>;
        float_min_dim_with_indices(tensor: T<B>, dim: usize, indices_dtype: IntDType) -> (T<B>, T<B>);
        float_expand(tensor: T<B>, shape: Shape) -> T<B>;
        float_unfold(tensor: T<B>, dim: usize, size: usize, step: usize) -> T<B>;
    }
}

impl<B: Backend> IntTensorOps<Self> for Memfit<B> {
    async fn int_into_data(tensor: T<B>) -> Result<TensorData, ExecutionError> {
        read(tensor).await
    }

    own!(int, methods);
    own!(made, creations);
    forward! {
        int_empty(shape: Shape, device: &B::Device, dtype: IntDType) -> T<B>;
        int_from_data(data: TensorData, device: &B::Device) -> T<B>;
        int_device(tensor: &T<B>) -> B::Device;
        int_to_device(tensor: T<B>, device: &B::Device) -> T<B>;
        int_reshape(tensor: T<B>, shape: Shape) -> T<B>;
        int_slice(tensor: T<B>, slices: &[Slice]) -> T<B>;
        int_slice_assign(tensor: T<B>, slices: &[Slice], value: T<B>) -> T<B>;
        int_into_float(tensor: T<B>, out_dtype: FloatDType) -> T<B>;
        int_mask_where(tensor: T<B>, mask: T<B>, value: T<B>) -> T<B>;
        int_mask_fill(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B>;
        int_gather(dim: usize, tensor: T<B>, indices: T<B>) -> T<B>;
        int_scatter_add(dim: usize, tensor: T<B>, indices: T<B>, value: T<B>) -> T<B>;
        int_scatter_nd(data: T<B>, indices: T<B>, values: T<B>, reduction: IndexingUpdateOp) -> T<B>;
        int_gather_nd(data: T<B>, indices: T<B>) -> T<B>;
        int_select(tensor: T<B>, dim: usize, indices: T<B>) -> T<B>;
        int_select_add(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>) -> T<B>;
        int_repeat_dim(tensor: T<B>, dim: usize, times: usize) -> T<B>;
        int_cat(tensors: Vec<T<B>>, dim: usize) -> T<B>;
        int_equal(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        int_equal_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        int_greater(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        int_greater_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        int_greater_equal(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        int_greater_equal_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        int_lower(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        int_lower_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        int_lower_equal(lhs: T<B>, rhs: T<B>, out_dtype: BoolDType) -> T<B>;
        int_lower_equal_elem(lhs: T<B>, rhs: Scalar, out_dtype: BoolDType) -> T<B>;
        int_add(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_add_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_powi(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_powi_scalar_impl(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_clamp(tensor: T<B>, min: Scalar, max: Scalar) -> T<B>;
        int_sub(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_sub_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_mul(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_mul_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_div(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_div_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_remainder(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_remainder_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_matmul(lhs: T<B>, rhs: T<B>) -> T<B>;
        int_zeros(shape: Shape, device: &B::Device, dtype: IntDType) -> T<B>;
        int_ones(shape: Shape, device: &B::Device, dtype: IntDType) -> T<B>;
        int_sum(tensor: T<B>) -> T<B>;
        int_sum_dim(tensor: T<B>, dim: usize) -> T<B>;
        int_prod(tensor: T<B>) -> T<B>;
        int_prod_dim(tensor: T<B>, dim: usize) -> T<B>;
        int_mean(tensor: T<B>) -> T<B>;
        int_mean_dim(tensor: T<B>, dim: usize) -> T<B>;
        int_cumsum(tensor: T<B>, dim: usize) -> T<B>;
        int_cumprod(tensor: T<B>, dim: usize) -> T<B>;
        int_cummin(tensor: T<B>, dim: usize) -> T<B>;
        int_cummax(tensor: T<B>, dim: usize) -> T<B>;
        int_argmax(tensor: T<B>, dim: usize) -> T<B>;
        int_argtopk(tensor: T<B>, dim: usize, k: usize) -> T<B>;
        int_topk(tensor: T<B>, dim: usize, k: usize) -> T<B>;
        int_argmin(tensor: T<B>, dim: usize) -> T<B>;
        int_max(tensor: T<B>) -> T<B>;
        int_max_dim(tensor: T<B>, dim: usize) -> T<B>;
        int_max_dim_with_indices(tensor: T<B>, dim: usize) -> (T<B>, T<B>);
        int_max_abs(tensor: T<B>) -> T<B>;
        int_max_abs_dim(tensor: T<B>, dim: usize) -> T<B>;
        int_min(tensor: T<B>) -> T<B>;
        int_min_dim(tensor: T<B>, dim: usize) -> T<B>;
        int_min_dim_with_indices(tensor: T<B>, dim: usize) -> (T<B>, T<B>);
        int_abs(tensor: T<B>) -> T<B>;
        int_swap_dims(tensor: T<B>, dim1: usize, dim2: usize) -> T<B>;
        int_permute(tensor: T<B>, axes: &[usize]) -> T<B>;
        int_flip(tensor: T<B>, axes: &[usize]) -> T<B>;
        int_random(shape: Shape, distribution: Distribution, device: &B::Device, dtype: IntDType) -> T<B>;
        int_expand(tensor: T<B>, shape: Shape) -> T<B>;
        bitwise_and(lhs: T<B>, rhs: T<B>) -> T<B>;
        bitwise_and_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        bitwise_or(lhs: T<B>, rhs: T<B>) -> T<B>;
        bitwise_or_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        bitwise_xor(lhs: T<B>, rhs: T<B>) -> T<B>;
        bitwise_xor_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        bitwise_not(tensor: T<B>) -> T<B>;
        bitwise_left_shift(lhs: T<B>, rhs: T<B>) -> T<B>;
        bitwise_left_shift_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        bitwise_right_shift(lhs: T<B>, rhs: T<B>) -> T<B>;
        bitwise_right_shift_scalar(lhs: T<B>, rhs: Scalar) -> T<B>;
        int_cast(tensor: T<B>, dtype: IntDType) -> T<B>;
        int_unfold(tensor: T<B>, dim: usize, size: usize, step: usize) -> T<B>;
    }
}

impl<B: Backend> BoolTensorOps<Self> for Memfit<B> {
    async fn bool_into_data(tensor: T<B>) -> Result<TensorData, ExecutionError> {
        read(tensor).await
    }

    own!(bool, methods);
    forward! {
        bool_empty(shape: Shape, device: &B::Device, dtype: BoolDType) -> T<B>;
        bool_zeros(shape: Shape, device: &B::Device, dtype: BoolDType) -> T<B>;
        bool_ones(shape: Shape, device: &B::Device, dtype: BoolDType) -> T<B>;
        bool_from_data(data: TensorData, device: &B::Device) -> T<B>;
        bool_into_int(tensor: T<B>, out_dtype: IntDType) -> T<B>;
        bool_into_float(tensor: T<B>, out_dtype: FloatDType) -> T<B>;
        bool_device(tensor: &T<B>) -> B::Device;
        bool_to_device(tensor: T<B>, device: &B::Device) -> T<B>;
        bool_reshape(tensor: T<B>, shape: Shape) -> T<B>;
        bool_slice(tensor: T<B>, slices: &[Slice]) -> T<B>;
        bool_slice_assign(tensor: T<B>, slices: &[Slice], value: T<B>) -> T<B>;
        bool_mask_where(tensor: T<B>, mask: T<B>, value: T<B>) -> T<B>;
        bool_mask_fill(tensor: T<B>, mask: T<B>, value: Scalar) -> T<B>;
        bool_gather(dim: usize, tensor: T<B>, indices: T<B>) -> T<B>;
        bool_scatter_or(dim: usize, tensor: T<B>, indices: T<B>, value: T<B>) -> T<B>;
        bool_select(tensor: T<B>, dim: usize, indices: T<B>) -> T<B>;
        bool_select_or(tensor: T<B>, dim: usize, indices: T<B>, value: T<B>) -> T<B>;
        bool_repeat_dim(tensor: T<B>, dim: usize, times: usize) -> T<B>;
        bool_cat(tensors: Vec<T<B>>, dim: usize) -> T<B>;
        bool_equal(lhs: T<B>, rhs: T<B>) -> T<B>;
        bool_equal_elem(lhs: T<B>, rhs: Scalar) -> T<B>;
        bool_not(tensor: T<B>) -> T<B>;
        bool_and(lhs: T<B>, rhs: T<B>) -> T<B>;
        bool_or(lhs: T<B>, rhs: T<B>) -> T<B>;
        bool_swap_dims(tensor: T<B>, dim1: usize, dim2: usize) -> T<B>;
        bool_permute(tensor: T<B>, axes: &[usize]) -> T<B>;
        bool_flip(tensor: T<B>, axes: &[usize]) -> T<B>;
        bool_expand(tensor: T<B>, shape: Shape) -> T<B>;
        bool_unfold(tensor: T<B>, dim: usize, size: usize, step: usize) -> T<B>;
    }
}

impl<B: Backend> ModuleOps<Self> for Memfit<B> {
    own!(module, methods);
    weight_gradients! {
        conv1d_weight_backward: conv1d, 1;
        conv2d_weight_backward: conv2d, 2;
        conv3d_weight_backward: conv3d, 3;
    }
    forward_records! {
        deform_conv2d_backward(x: T<B>, offset: T<B>, weight: T<B>, mask: Option<T<B>>, bias: Option<T<B>>, output_grad: T<B>, options: DeformConvOptions<2>) -> DeformConv2dBackward { x_grad, offset_grad, weight_grad, mask_grad, bias_grad };
        max_pool1d_with_indices(x: T<B>, kernel_size: usize, stride: usize, padding: usize, dilation: usize, ceil_mode: bool) -> MaxPool1dWithIndices { output, indices };
        max_pool1d_with_indices_backward(x: T<B>, kernel_size: usize, stride: usize, padding: usize, dilation: usize, ceil_mode: bool, output_grad: T<B>, indices: T<B>) -> MaxPool1dBackward { x_grad };
        max_pool2d_with_indices(x: T<B>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], ceil_mode: bool) -> MaxPool2dWithIndices { output, indices };
        max_pool2d_with_indices_backward(x: T<B>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], ceil_mode: bool, output_grad: T<B>, indices: T<B>) -> MaxPool2dBackward { x_grad };
    }
    forward! {
        linear(x: T<B>, weight: T<B>, bias: Option<T<B>>) -> T<B>;
        linear_x_backward(weight: T<B>, output_grad: T<B>) -> T<B>;
        linear_weight_backward(x: T<B>, output_grad: T<B>) -> T<B>;
        linear_bias_backward(output_grad: T<B>) -> T<B>;
        conv1d(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: ConvOptions<1>) -> T<B>;
        conv1d_x_backward(x: T<B>, weight: T<B>, output_grad: T<B>, options: ConvOptions<1>) -> T<B>;
        conv1d_bias_backward(x: T<B>, bias: T<B>, output_grad: T<B>) -> T<B>;
        conv2d(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: ConvOptions<2>) -> T<B>;
        conv2d_x_backward(x: T<B>, weight: T<B>, output_grad: T<B>, options: ConvOptions<2>) -> T<B>;
        conv2d_bias_backward(x: T<B>, bias: T<B>, output_grad: T<B>) -> T<B>;
        deform_conv2d(x: T<B>, offset: T<B>, weight: T<B>, mask: Option<T<B>>, bias: Option<T<B>>, options: DeformConvOptions<2>) -> T<B>;
        conv3d(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: ConvOptions<3>) -> T<B>;
        conv3d_x_backward(x: T<B>, weight: T<B>, output_grad: T<B>, options: ConvOptions<3>) -> T<B>;
        conv3d_bias_backward(x: T<B>, bias: T<B>, output_grad: T<B>) -> T<B>;
        conv_transpose1d(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: ConvTransposeOptions<1>) -> T<B>;
        conv_transpose2d(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: ConvTransposeOptions<2>) -> T<B>;
        conv_transpose3d(x: T<B>, weight: T<B>, bias: Option<T<B>>, options: ConvTransposeOptions<3>) -> T<B>;
        avg_pool1d(x: T<B>, kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool, ceil_mode: bool) -> T<B>;
        avg_pool1d_backward(x: T<B>, grad: T<B>, kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool, ceil_mode: bool) -> T<B>;
        avg_pool2d(x: T<B>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], count_include_pad: bool, ceil_mode: bool) -> T<B>;
        avg_pool2d_backward(x: T<B>, grad: T<B>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], count_include_pad: bool, ceil_mode: bool) -> T<B>;
        adaptive_avg_pool2d(x: T<B>, output_size: [usize; 2]) -> T<B>;
        adaptive_avg_pool2d_backward(x: T<B>, grad: T<B>) -> T<B>;
        adaptive_avg_pool1d(x: T<B>, output_size: usize) -> T<B>;
        adaptive_avg_pool1d_backward(x: T<B>, grad: T<B>) -> T<B>;
        max_pool1d(x: T<B>, kernel_size: usize, stride: usize, padding: usize, dilation: usize, ceil_mode: bool) -> T<B>;
        max_pool2d(x: T<B>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], ceil_mode: bool) -> T<B>;
        interpolate(x: T<B>, output_size: [usize; 2], options: InterpolateOptions) -> T<B>;
        interpolate_backward(x: T<B>, grad: T<B>, output_size: [usize; 2], options: InterpolateOptions) -> T<B>;
        attention(query: T<B>, key: T<B>, value: T<B>, mask: Option<T<B>>, attn_bias: Option<T<B>>, options: AttentionModuleOptions) -> T<B>;
    }
}

impl<B: Backend> QTensorOps<Self> for Memfit<B> {
    own!(quantized, methods);
    own!(lent, lent_methods);

    async fn q_into_data(tensor: T<B>) -> Result<TensorData, ExecutionError> {
        read(tensor).await
    }

    fn q_from_data(data: TensorData, device: &B::Device) -> T<B> {
        let _turn = turn();
        client(device).register_tensor_data(data)
    }

    fn q_device(tensor: &T<B>) -> B::Device {
        tensor.client.device()
    }

    fn q_to_device(tensor: T<B>, device: &B::Device) -> T<B> {
        if tensor.client.device() == *device {
            return tensor;
        }
        let data = burn_backend::read_sync(read(tensor));
        Self::q_from_data(data.unwrap_or_else(|error| panic!("memfit: {error}")), device)
    }
}
