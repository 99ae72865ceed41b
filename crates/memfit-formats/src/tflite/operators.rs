//! Built-in operators: names, what they may do in place, and the work they are.
//!
//! In place is what a kernel may do that reads each element before it writes the one of the same index: TensorFlow Lite says so
//! of `ADD`, `SUB`, `MUL`, `DIV`, `SOFTMAX`, `DYNAMIC_UPDATE_SLICE` and of views (`inplace_operator` of their registrations); the
//! other element-wise kernels, which it leaves out, read and write in the same order, in TensorFlow Lite Micro as well.

use super::schema::{Operator, Subgraph};

/// Name of every built-in operator, by number.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "DEPTH_TO_SPACE", "DEQUANTIZE",
    "EMBEDDING_LOOKUP", "FLOOR", "FULLY_CONNECTED", "HASHTABLE_LOOKUP", "L2_NORMALIZATION", "L2_POOL_2D",
    "LOCAL_RESPONSE_NORMALIZATION", "LOGISTIC", "LSH_PROJECTION", "LSTM", "MAX_POOL_2D", "MUL", "RELU",
    "RELU_N1_TO_1", "RELU6", "RESHAPE", "RESIZE_BILINEAR", "RNN", "SOFTMAX", "SPACE_TO_DEPTH", "SVDF", "TANH",
    "CONCAT_EMBEDDINGS", "SKIP_GRAM", "CALL", "CUSTOM", "EMBEDDING_LOOKUP_SPARSE", "PAD",
    "UNIDIRECTIONAL_SEQUENCE_RNN", "GATHER", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "TRANSPOSE", "MEAN",
    "SUB", "DIV", "SQUEEZE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE", "BIDIRECTIONAL_SEQUENCE_RNN",
    "EXP", "TOPK_V2", "SPLIT", "LOG_SOFTMAX", "DELEGATE", "BIDIRECTIONAL_SEQUENCE_LSTM", "CAST", "PRELU",
    "MAXIMUM", "ARG_MAX", "MINIMUM", "LESS", "NEG", "PADV2", "GREATER", "GREATER_EQUAL", "LESS_EQUAL",
    "SELECT", "SLICE", "SIN", "TRANSPOSE_CONV", "SPARSE_TO_DENSE", "TILE", "EXPAND_DIMS", "EQUAL", "NOT_EQUAL",
    "LOG", "SUM", "SQRT", "RSQRT", "SHAPE", "POW", "ARG_MIN", "FAKE_QUANT", "REDUCE_PROD", "REDUCE_MAX",
    "PACK", "LOGICAL_OR", "ONE_HOT", "LOGICAL_AND", "LOGICAL_NOT", "UNPACK", "REDUCE_MIN", "FLOOR_DIV",
    "REDUCE_ANY", "SQUARE", "ZEROS_LIKE", "FILL", "FLOOR_MOD", "RANGE", "RESIZE_NEAREST_NEIGHBOR",
    "LEAKY_RELU", "SQUARED_DIFFERENCE", "MIRROR_PAD", "ABS", "SPLIT_V", "UNIQUE", "CEIL", "REVERSE_V2",
    "ADD_N", "GATHER_ND", "COS", "WHERE", "RANK", "ELU", "REVERSE_SEQUENCE", "MATRIX_DIAG", "QUANTIZE",
    "MATRIX_SET_DIAG", "ROUND", "HARD_SWISH", "IF", "WHILE", "NON_MAX_SUPPRESSION_V4",
    "NON_MAX_SUPPRESSION_V5", "SCATTER_ND", "SELECT_V2", "DENSIFY", "SEGMENT_SUM", "BATCH_MATMUL",
    "PLACEHOLDER_FOR_GREATER_OP_CODES", "CUMSUM", "CALL_ONCE", "BROADCAST_TO", "RFFT2D", "CONV_3D", "IMAG",
    "REAL", "COMPLEX_ABS", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "REDUCE_ALL",
    "CONV_3D_TRANSPOSE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "BROADCAST_ARGS",
    "RANDOM_STANDARD_NORMAL", "BUCKETIZE", "RANDOM_UNIFORM", "MULTINOMIAL", "GELU", "DYNAMIC_UPDATE_SLICE",
    "RELU_0_TO_1", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_SUM", "ATAN2",
    "UNSORTED_SEGMENT_MIN", "SIGN", "BITCAST", "BITWISE_XOR", "RIGHT_SHIFT", "STABLEHLO_LOGISTIC",
    "STABLEHLO_ADD", "STABLEHLO_DIVIDE", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_RESHAPE",
    "STABLEHLO_CLAMP", "STABLEHLO_CONCATENATE", "STABLEHLO_BROADCAST_IN_DIM", "STABLEHLO_CONVOLUTION",
    "STABLEHLO_SLICE", "STABLEHLO_CUSTOM_CALL", "STABLEHLO_REDUCE", "STABLEHLO_ABS", "STABLEHLO_AND",
    "STABLEHLO_COSINE", "STABLEHLO_EXPONENTIAL", "STABLEHLO_FLOOR", "STABLEHLO_LOG", "STABLEHLO_MINIMUM",
    "STABLEHLO_NEGATE", "STABLEHLO_OR", "STABLEHLO_POWER", "STABLEHLO_REMAINDER", "STABLEHLO_RSQRT",
    "STABLEHLO_SELECT", "STABLEHLO_SUBTRACT", "STABLEHLO_TANH", "STABLEHLO_SCATTER", "STABLEHLO_COMPARE",
    "STABLEHLO_CONVERT", "STABLEHLO_DYNAMIC_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_PAD",
    "STABLEHLO_IOTA", "STABLEHLO_DOT_GENERAL", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SORT", "STABLEHLO_WHILE",
    "STABLEHLO_GATHER", "STABLEHLO_TRANSPOSE", "DILATE", "STABLEHLO_RNG_BIT_GENERATOR", "REDUCE_WINDOW",
    "STABLEHLO_COMPOSITE", "STABLEHLO_SHIFT_LEFT", "STABLEHLO_CBRT", "STABLEHLO_CASE",
];

/// The number of operators that are not built in.
const CUSTOM: i32 = 32;

/// Ops that hand on the bytes of their first input under another shape.
const VIEWS: &[&str] = &["RESHAPE", "SQUEEZE", "EXPAND_DIMS", "BITCAST"];

/// What only a run can tell, or what lies in other subgraphs.
const CONTROL: &[&str] =
    &["IF", "WHILE", "CALL", "DELEGATE", "STABLEHLO_WHILE", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE"];

/// What has an effect beside its outputs, and runs in the order of the file.
const ONCE: &[&str] =
    &["CALL_ONCE", "READ_VARIABLE", "ASSIGN_VARIABLE", "HASHTABLE", "HASHTABLE_IMPORT", "CUSTOM"];

/// Ops that draw random numbers.
const SEEDED: &[&str] =
    &["RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "MULTINOMIAL", "STABLEHLO_RNG_BIT_GENERATOR"];

/// Ops whose first input may give its bytes to their output.
const FIRST: &[&str] = &[
    "ABS",
    "NEG",
    "EXP",
    "LOG",
    "SQRT",
    "RSQRT",
    "SQUARE",
    "SIN",
    "COS",
    "FLOOR",
    "CEIL",
    "ROUND",
    "SIGN",
    "LOGICAL_NOT",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RELU_0_TO_1",
    "ELU",
    "GELU",
    "LEAKY_RELU",
    "PRELU",
    "HARD_SWISH",
    "TANH",
    "LOGISTIC",
    "SOFTMAX",
    "QUANTIZE",
    "DYNAMIC_UPDATE_SLICE",
];

/// Ops of which either of the first two inputs may.
const EITHER: &[&str] = &[
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "MAXIMUM",
    "MINIMUM",
    "SQUARED_DIFFERENCE",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "POW",
    "LOGICAL_AND",
    "LOGICAL_OR",
];

impl Operator<'_> {
    /// Its name, as people know it.
    pub(super) fn name(&self) -> String {
        if self.code == CUSTOM {
            return format!("CUSTOM.{}", String::from_utf8_lossy(&self.custom[..self.custom.len().min(200)]));
        }
        self.builtin().map_or_else(|| format!("operator {}", self.code), str::to_owned)
    }

    /// The name of a built-in operator that is known.
    pub(super) fn builtin(&self) -> Option<&'static str> {
        usize::try_from(self.code).ok().and_then(|code| NAMES.get(code)).copied()
    }

    fn is_among(&self, list: &[&str]) -> bool {
        self.builtin().is_some_and(|name| list.contains(&name))
    }

    pub(super) fn is_view(&self) -> bool {
        self.is_among(VIEWS)
    }

    pub(super) fn is_control(&self) -> bool {
        self.is_among(CONTROL)
    }

    /// What nobody knows may do anything.
    pub(super) fn is_once(&self) -> bool {
        self.builtin().is_none() || self.is_among(ONCE)
    }

    pub(super) fn is_seeded(&self) -> bool {
        self.is_among(SEEDED)
    }

    /// How many of its first inputs may give their bytes to its first output.
    pub(super) fn sharable(&self) -> usize {
        match () {
            () if self.is_among(FIRST) => 1,
            () if self.is_among(EITHER) => 2,
            () => 0,
        }
    }

    /// Floating-point operations: two for each multiply-add, one for each element of other outputs.
    pub(super) fn flops(&self, graph: &Subgraph<'_>) -> f64 {
        let tensor = |at: Option<&Option<usize>>| at.copied().flatten().map(|index| &graph.tensors[index]);
        let Some(output) = self.outputs.first().map(|&index| &graph.tensors[index]) else { return 0.0 };
        let (first, second) = (tensor(self.inputs.first()), tensor(self.inputs.get(1)));
        // A dimension of a tensor, counted from its end.
        let dim = |tensor: Option<&super::schema::Tensor<'_>>, back: usize| {
            let shape = tensor.map_or(&[][..], |tensor| &tensor.shape);
            shape.len().checked_sub(back).map_or(1.0, |at| f64::from(shape[at].max(0)))
        };
        let filter = second.map_or(0.0, super::schema::Tensor::count);
        let flops = match self.builtin() {
            // Filters are output channels × height × width × input channels.
            Some("CONV_2D") => 2.0 * output.count() * filter / dim(second, 4).max(1.0),
            Some("DEPTHWISE_CONV_2D") => 2.0 * output.count() * dim(second, 2) * dim(second, 3),
            Some("CONV_3D") => 2.0 * output.count() * filter / dim(second, 1).max(1.0),
            Some("TRANSPOSE_CONV") => {
                2.0 * tensor(self.inputs.get(2)).map_or(0.0, |t| t.count()) * filter / dim(second, 1).max(1.0)
            }
            Some("FULLY_CONNECTED") => 2.0 * output.count() * dim(second, 1),
            Some("BATCH_MATMUL") => 2.0 * output.count() * dim(first, 1),
            _ => output.count(),
        };
        if flops.is_finite() { flops } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_names_operators_that_there_are() {
        assert_eq!(NAMES.len(), 210);
        assert_eq!(
            (NAMES[3], NAMES[32], NAMES[126], NAMES[209]),
            ("CONV_2D", "CUSTOM", "BATCH_MATMUL", "STABLEHLO_CASE")
        );
        for name in [VIEWS, CONTROL, ONCE, SEEDED, FIRST, EITHER].concat() {
            assert!(NAMES.contains(&name), "{name}");
        }
    }
}
