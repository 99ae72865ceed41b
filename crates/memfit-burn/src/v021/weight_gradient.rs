//! The gradient of a convolution's weights, where Burn's default slices it out of a larger one: op by op there, as the slice
//! keeps the bytes of all of that on a backend whose slices are views.

use burn_backend::Shape;
use burn_backend::ops::ConvOptions;
use burn_backend::ops::conv::calculate_conv_output_sizes;

/// Whether the default slices: it convolves the input with the gradient of the output, and what that makes is larger than the kernel
/// where the strides leave a rest of the input. Where there are several groups each slice is copied to its place.
pub(super) fn is_sliced<const D: usize>(
    x: &Shape,
    weight: &Shape,
    grad: &Shape,
    options: &ConvOptions<D>,
) -> bool {
    let ConvOptions { stride, padding, dilation, groups } = options;
    *groups == 1 && calculate_conv_output_sizes(&grad[2..], dilation, padding, stride, &x[2..]) != weight[2..]
}

/// The methods `$name`, which convolve by `$conv` in `$dims` dimensions.
macro_rules! weight_gradients {
    ($($name:ident: $conv:ident, $dims:literal;)*) => {$(
        fn $name(x: T<B>, weight: T<B>, output_grad: T<B>, options: ConvOptions<$dims>) -> T<B> {
            let _turn = turn();
            let shapes = [&x, &weight, &output_grad].map(TensorMetadata::shape);
            let [of_x, of_weight, of_grad] = &shapes;
            if !B::SLICES_WEIGHT_GRADIENTS || !is_sliced(of_x, of_weight, of_grad, &options) {
                return Router::<B>::$name(x, weight, output_grad, options);
            }
            let [x, grad] = [x, output_grad].map(|tensor| Router::<B>::float_swap_dims(tensor, 0, 1));
            let options = ConvOptions::new(options.dilation, options.padding, options.stride, 1);
            let made = Router::<B>::float_swap_dims(Router::<B>::$conv(x, grad, None, options), 0, 1);
            let slices: Vec<Slice> = of_weight.iter().map(|&size| Slice::from(0..size)).collect();
            Router::<B>::float_slice(made, &slices)
        }
    )*};
}
pub(super) use weight_gradients;
