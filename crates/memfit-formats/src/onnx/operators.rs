//! The table of operators that memfit plans. A new operator is one line, and one function if none fits.

use super::call::{Answer, Call};
use super::infer::{
    attention, conv, elementwise, index, layout, linear, norm, quant, random, recurrent, reduce, resize,
    shapes,
};

/// Floating-point operations of a node; a multiply-add counts as two.
#[derive(Clone, Copy)]
pub(super) enum Flops {
    /// Bytes are moved, nothing is computed.
    Zero,
    /// For each element of output 0.
    Output(f64),
    /// For each element of operand 0.
    Input(f64),
    /// By the node and the elements of output 0.
    Of(fn(&Call<'_>, f64) -> f64),
}

use Flops::{Input, Of, Output, Zero};

/// An operator of ONNX.
#[derive(Clone, Copy)]
pub(super) struct Operator {
    /// Name, behind its domain and a dot where that is not the default one.
    pub(super) name: &'static str,
    /// Types and shapes of its outputs, and their contents where those are constant.
    pub(super) infer: fn(&Call<'_>) -> Answer,
    pub(super) flops: Flops,
    /// Whether it reads each byte of an operand before it writes the same byte of its output, so that the
    /// output may take the operand's place.
    pub(super) element_wise: bool,
    /// Whether it draws from the random generator.
    pub(super) seeded: bool,
    /// Whether it reads only as much of operand 0 as it writes.
    pub(super) picks: bool,
    /// Operands that say a shape, an axis or a bound: a constant there is no memory traffic.
    pub(super) host: &'static [usize],
    /// Operands of which only type or shape is asked.
    pub(super) unread: &'static [usize],
}

const fn op(name: &'static str, infer: fn(&Call<'_>) -> Answer, flops: Flops) -> Operator {
    Operator { name, infer, flops, element_wise: false, seeded: false, picks: false, host: &[], unread: &[] }
}

/// An operator whose output may take an operand's place.
const fn each(name: &'static str, infer: fn(&Call<'_>) -> Answer, flops: f64) -> Operator {
    Operator { element_wise: true, ..op(name, infer, Output(flops)) }
}

impl Operator {
    const fn host(self, host: &'static [usize]) -> Operator {
        Operator { host, ..self }
    }

    const fn picks(self) -> Operator {
        Operator { picks: true, ..self }
    }

    const fn seeded(self) -> Operator {
        Operator { seeded: true, ..self }
    }

    const fn unread(self, unread: &'static [usize]) -> Operator {
        Operator { unread, ..self }
    }
}

/// A rough price of `exp` and its kin, which take several instructions.
const HARD: f64 = 8.0;

const MATMUL: Flops = Of(|call, outputs| 2.0 * outputs * linear::depth(call) as f64);
const CONV: Flops = Of(|call, outputs| 2.0 * outputs * conv::filter(call, 1));
const POOL: Flops = Of(|call, outputs| outputs * conv::pool_window(call));

/// Every operator, by family.
#[rustfmt::skip]
pub(super) const OPERATORS: &[Operator] = &[
    // One operand.
    each("Abs", elementwise::unary, 1.0), each("Neg", elementwise::unary, 1.0), each("Sign", elementwise::unary, 1.0),
    each("Ceil", elementwise::unary, 1.0), each("Floor", elementwise::unary, 1.0), each("Round", elementwise::unary, 1.0),
    each("Not", elementwise::unary, 1.0), each("BitwiseNot", elementwise::unary, 1.0),
    each("Sqrt", elementwise::unary, HARD), each("Reciprocal", elementwise::unary, HARD),
    each("Exp", elementwise::unary, HARD), each("Log", elementwise::unary, HARD), each("Erf", elementwise::unary, HARD),
    each("Sin", elementwise::unary, HARD), each("Cos", elementwise::unary, HARD), each("Tan", elementwise::unary, HARD),
    each("Asin", elementwise::unary, HARD), each("Acos", elementwise::unary, HARD), each("Atan", elementwise::unary, HARD),
    each("Sinh", elementwise::unary, HARD), each("Cosh", elementwise::unary, HARD),
    each("Asinh", elementwise::unary, HARD), each("Acosh", elementwise::unary, HARD), each("Atanh", elementwise::unary, HARD),
    each("Relu", elementwise::unary, 1.0), each("LeakyRelu", elementwise::unary, 2.0),
    each("ThresholdedRelu", elementwise::unary, 1.0), each("Shrink", elementwise::unary, 2.0),
    each("HardSigmoid", elementwise::unary, 3.0), each("HardSwish", elementwise::unary, 4.0),
    each("Elu", elementwise::unary, HARD), each("Selu", elementwise::unary, HARD), each("Celu", elementwise::unary, HARD),
    each("Sigmoid", elementwise::unary, HARD), each("Tanh", elementwise::unary, HARD),
    each("Softplus", elementwise::unary, HARD), each("Softsign", elementwise::unary, 3.0),
    each("Silu", elementwise::unary, HARD), each("Swish", elementwise::unary, HARD), each("Mish", elementwise::unary, HARD),
    each("Gelu", elementwise::unary, HARD), each("com.microsoft.Gelu", elementwise::unary, HARD),
    each("com.microsoft.QuickGelu", elementwise::unary, HARD),
    each("Clip", elementwise::unary, 2.0).host(&[1, 2]),
    op("IsNaN", elementwise::test, Output(1.0)), op("IsInf", elementwise::test, Output(1.0)),
    each("Cast", elementwise::cast, 0.0), each("CastLike", elementwise::cast_like, 0.0).unread(&[1]),
    op("BitCast", elementwise::bit_cast, Zero),
    op("Identity", elementwise::identity, Zero),
    Operator { element_wise: true, ..op("Dropout", elementwise::dropout, Output(2.0)).seeded().host(&[1, 2]) },

    // Two and more operands.
    each("Add", elementwise::binary, 1.0), each("Sub", elementwise::binary, 1.0), each("Mul", elementwise::binary, 1.0),
    each("Div", elementwise::binary, 1.0), each("Mod", elementwise::binary, 1.0), each("Pow", elementwise::binary, HARD),
    each("And", elementwise::compare, 1.0), each("Or", elementwise::compare, 1.0), each("Xor", elementwise::compare, 1.0),
    each("BitShift", elementwise::binary, 1.0), each("BitwiseAnd", elementwise::binary, 1.0),
    each("BitwiseOr", elementwise::binary, 1.0), each("BitwiseXor", elementwise::binary, 1.0),
    each("Equal", elementwise::compare, 1.0), each("Less", elementwise::compare, 1.0),
    each("LessOrEqual", elementwise::compare, 1.0), each("Greater", elementwise::compare, 1.0),
    each("GreaterOrEqual", elementwise::compare, 1.0),
    each("Max", elementwise::variadic, 1.0), each("Min", elementwise::variadic, 1.0),
    each("Sum", elementwise::variadic, 1.0), each("Mean", elementwise::variadic, 1.0),
    each("Where", elementwise::choose, 1.0), each("PRelu", elementwise::prelu, 2.0),
    each("SwiGLU", elementwise::binary, HARD),
    each("com.microsoft.BiasGelu", elementwise::binary, HARD), each("com.microsoft.FastGelu", elementwise::unary, HARD),

    // Shapes as data, and views.
    op("Constant", shapes::constant, Zero), op("ConstantOfShape", shapes::constant_of_shape, Zero).host(&[0]),
    op("Shape", shapes::shape, Zero), op("Size", shapes::size, Zero),
    op("Range", shapes::range, Zero).host(&[0, 1, 2]), op("EyeLike", shapes::eye_like, Zero).unread(&[0]),
    op("Reshape", shapes::reshape, Zero), op("Flatten", shapes::flatten, Zero),
    op("Squeeze", shapes::squeeze, Zero), op("Unsqueeze", shapes::unsqueeze, Zero),
    op("Expand", shapes::expand, Zero).host(&[1]),

    // Elements moved.
    op("Transpose", layout::transpose, Zero), op("Concat", layout::concat, Zero),
    op("Split", layout::split, Zero).host(&[1]), op("Slice", layout::slice, Zero).host(&[1, 2, 3, 4]).picks(),
    op("Tile", layout::tile, Zero).host(&[1]), op("Pad", layout::pad, Zero).host(&[1, 2, 3]),
    op("DepthToSpace", layout::depth_to_space, Zero), op("SpaceToDepth", layout::space_to_depth, Zero),
    each("Trilu", layout::same, 0.0).host(&[1]), op("ReverseSequence", layout::same, Zero),
    op("Resize", resize::resize, Output(8.0)).host(&[1, 2, 3]), op("Upsample", resize::upsample, Output(8.0)).host(&[1]),

    // Elements chosen by others.
    op("Gather", index::gather, Zero).picks(), op("GatherElements", index::gather_elements, Zero).picks(),
    op("GatherND", index::gather_nd, Zero).picks(),
    op("Scatter", index::scatter, Zero), op("ScatterElements", index::scatter, Zero), op("ScatterND", index::scatter, Zero),
    op("TensorScatter", index::scatter, Zero),
    op("TopK", index::top_k, Input(4.0)).host(&[1]), op("ArgMax", index::arg, Input(1.0)), op("ArgMin", index::arg, Input(1.0)),
    op("OneHot", index::one_hot, Zero).host(&[1]), op("CumSum", layout::same, Output(1.0)).host(&[1]),
    op("CumProd", layout::same, Output(1.0)).host(&[1]),
    op("NonZero", index::non_zero, Zero), op("Compress", index::unbounded, Zero), op("Unique", index::unbounded, Zero),
    op("NonMaxSuppression", index::unbounded, Zero),
    op("RoiAlign", index::roi_align, Output(16.0)), op("GridSample", index::grid_sample, Output(8.0)),

    // Matrix products and convolutions.
    op("MatMul", linear::matmul, MATMUL), op("Gemm", linear::gemm, MATMUL),
    op("MatMulInteger", linear::matmul_integer, MATMUL), op("QLinearMatMul", linear::qlinear_matmul, MATMUL),
    op("Einsum", linear::einsum, Of(|call, _| linear::einsum_flops(call))),
    op("Conv", conv::conv, CONV), op("ConvInteger", conv::conv_integer, CONV),
    op("QLinearConv", conv::qlinear_conv, Of(|call, outputs| 2.0 * outputs * conv::filter(call, 3))),
    op("DeformConv", conv::conv, Of(|call, outputs| (2.0 * outputs + 8.0) * conv::filter(call, 1))),
    op("ConvTranspose", conv::conv_transpose, Of(|call, _| {
        let inputs = call.optional(0).map_or(0.0, |x| x.shape.iter().map(|&dim| dim as f64).product());
        2.0 * inputs * conv::filter(call, 1)
    })),
    op("MaxPool", conv::pool, POOL), op("AveragePool", conv::pool, POOL), op("LpPool", conv::pool, POOL),
    op("GlobalMaxPool", conv::global_pool, Input(1.0)), op("GlobalAveragePool", conv::global_pool, Input(1.0)),
    op("GlobalLpPool", conv::global_pool, Input(2.0)),

    // Normalisations.
    each("BatchNormalization", norm::batch, 2.0), op("InstanceNormalization", norm::channels, Output(8.0)),
    op("GroupNormalization", norm::channels, Output(8.0)), op("LayerNormalization", norm::layer, Output(8.0)),
    op("RMSNormalization", norm::layer, Output(5.0)), op("SimplifiedLayerNormalization", norm::layer, Output(5.0)),
    op("com.microsoft.SimplifiedLayerNormalization", norm::layer, Output(5.0)),
    op("com.microsoft.SkipLayerNormalization", norm::skip_layer, Output(9.0)),
    op("com.microsoft.SkipSimplifiedLayerNormalization", norm::skip_layer, Output(6.0)),
    op("LRN", norm::channels, Of(|call, outputs| outputs * (2.0 * call.int("size", 1).unwrap_or(1) as f64 + HARD))),
    op("MeanVarianceNormalization", norm::channels, Output(8.0)), op("LpNormalization", norm::along, Output(4.0)),
    op("Softmax", norm::along, Output(5.0)), op("LogSoftmax", norm::along, Output(5.0)), op("Hardmax", norm::along, Output(2.0)),

    // Many elements to one.
    op("ReduceSum", reduce::reduce, Input(1.0)).host(&[1]), op("ReduceMean", reduce::reduce, Input(1.0)).host(&[1]),
    op("ReduceMax", reduce::reduce, Input(1.0)).host(&[1]), op("ReduceMin", reduce::reduce, Input(1.0)).host(&[1]),
    op("ReduceProd", reduce::reduce, Input(1.0)).host(&[1]), op("ReduceL1", reduce::reduce, Input(2.0)).host(&[1]),
    op("ReduceL2", reduce::reduce, Input(2.0)).host(&[1]), op("ReduceSumSquare", reduce::reduce, Input(2.0)).host(&[1]),
    op("ReduceLogSum", reduce::reduce, Input(1.0)).host(&[1]), op("ReduceLogSumExp", reduce::reduce, Input(HARD)).host(&[1]),
    op("NegativeLogLikelihoodLoss", reduce::loss, Output(2.0)), op("SoftmaxCrossEntropyLoss", reduce::loss, Input(HARD)),

    // Layers over sequences.
    op("RNN", recurrent::recurrent, Of(|call, _| recurrent::flops(call))),
    op("GRU", recurrent::recurrent, Of(|call, _| recurrent::flops(call))),
    op("LSTM", recurrent::recurrent, Of(|call, _| recurrent::flops(call))),
    op("com.microsoft.DynamicQuantizeLSTM", recurrent::quantised, Of(|call, _| recurrent::flops(call))),
    op("Attention", attention::attention, Of(|call, _| attention::flops(call))),
    op("RotaryEmbedding", layout::same, Output(3.0)), op("com.microsoft.RotaryEmbedding", layout::same, Output(3.0)),

    // Quantisation.
    op("QuantizeLinear", quant::quantize, Output(3.0)), op("DequantizeLinear", quant::dequantize, Output(2.0)),
    op("DynamicQuantizeLinear", quant::dynamic, Output(4.0)),

    // Random numbers.
    op("RandomNormal", random::shaped, Output(HARD)).seeded(), op("RandomUniform", random::shaped, Output(HARD)).seeded(),
    op("RandomNormalLike", random::like, Output(HARD)).seeded().unread(&[0]),
    op("RandomUniformLike", random::like, Output(HARD)).seeded().unread(&[0]),
    op("Bernoulli", random::like, Output(HARD)).seeded(), op("Multinomial", random::multinomial, Output(HARD)).seeded(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operator_stands_once() {
        let mut names: Vec<&str> = OPERATORS.iter().map(|operator| operator.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
