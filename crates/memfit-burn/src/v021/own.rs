//! Ops that Burn's router would take apart, and that backends have a kernel of their own for: each is recorded as one op,
//! and run as the backend has it. So a network has the bits that it has on the backend alone.
//!
//! One line of the table is one method of Burn's traits: what it takes, what it makes, and of which shapes.

use std::ops::Range;

use burn_backend::ops::GridSampleOptions;
use burn_backend::quantization::QuantScheme;
use burn_backend::{BoolDType, DType, FloatDType, IntDType, Scalar, Shape, Slice};
use burn_ir::{CustomOpIr, OperationIr, TensorHandle, TensorIr, TensorStatus};
use burn_router::{RouterTensor, RunnerClient as _};

use super::backend::Backend;
use super::channel::MemfitClient;
use super::quantized::{Lent, Scales};

/// A tensor of whatever kind, as a program holds it.
pub(super) type T<B> = RouterTensor<MemfitClient<B>>;

/// Hands every own op to the macro `$to`: `method(argument: Kind, ..) -> Kind, shapes`.
macro_rules! own {
    (activation, $to:ident) => { $to! {
        leaky_relu(tensor: Float, slope: Scalar) -> Float, like;
        relu(tensor: Float) -> Float, like;
        relu_backward(output: Float, grad: Float) -> Float, like;
        gelu(tensor: Float) -> Float, like;
        gelu_backward(x: Float, grad: Float) -> Float, like;
        prelu(tensor: Float, alpha: Float) -> Float, like;
        sigmoid(tensor: Float) -> Float, like;
        sigmoid_backward(output: Float, grad: Float) -> Float, like;
        hard_sigmoid(tensor: Float, alpha: Scalar, beta: Scalar) -> Float, like;
        log_sigmoid(tensor: Float) -> Float, like;
        log_sigmoid_backward(x: Float, grad: Float) -> Float, like;
        softmax(tensor: Float, dim: usize) -> Float, like;
    } };
    (float, $to:ident) => { $to! {
        float_clamp_min(tensor: Float, min: Scalar) -> Float, like;
        float_clamp_max(tensor: Float, max: Scalar) -> Float, like;
        float_neg(tensor: Float) -> Float, like;
        float_not_equal(lhs: Float, rhs: Float, dtype: BoolDType) -> Bool, broadcast;
        float_not_equal_elem(lhs: Float, rhs: Scalar, dtype: BoolDType) -> Bool, like;
        float_powi_scalar(lhs: Float, rhs: Scalar) -> Float, like;
        float_powf_scalar(tensor: Float, value: Scalar) -> Float, like;
        float_max_abs(tensor: Float) -> Float, one;
        float_max_abs_dim(tensor: Float, dim: usize) -> Float, reduced;
        float_any(tensor: Float, dtype: BoolDType) -> Bool, one;
        float_any_dim(tensor: Float, dim: usize, dtype: BoolDType) -> Bool, reduced;
        float_all(tensor: Float, dtype: BoolDType) -> Bool, one;
        float_all_dim(tensor: Float, dim: usize, dtype: BoolDType) -> Bool, reduced;
        float_sign(tensor: Float) -> Float, like;
        float_sort(tensor: Float, dim: usize, descending: bool) -> Float, like;
        float_sort_with_indices(tensor: Float, dim: usize, descending: bool, dtype: IntDType) -> (Float, Int), sorted;
        float_argsort(tensor: Float, dim: usize, descending: bool, dtype: IntDType) -> Int, like;
        float_grid_sample_2d(tensor: Float, grid: Float, options: GridSampleOptions) -> Float, sampled;
        float_is_nan(tensor: Float, dtype: BoolDType) -> Bool, like;
        float_is_inf(tensor: Float, dtype: BoolDType) -> Bool, like;
    } };
    (int, $to:ident) => { $to! {
        int_not_equal(lhs: Int, rhs: Int, dtype: BoolDType) -> Bool, broadcast;
        int_not_equal_elem(lhs: Int, rhs: Scalar, dtype: BoolDType) -> Bool, like;
        int_powi_scalar(lhs: Int, rhs: Scalar) -> Int, like;
        int_clamp_min(tensor: Int, min: Scalar) -> Int, like;
        int_clamp_max(tensor: Int, max: Scalar) -> Int, like;
        int_neg(tensor: Int) -> Int, like;
        int_any(tensor: Int, dtype: BoolDType) -> Bool, one;
        int_any_dim(tensor: Int, dim: usize, dtype: BoolDType) -> Bool, reduced;
        int_all(tensor: Int, dtype: BoolDType) -> Bool, one;
        int_all_dim(tensor: Int, dim: usize, dtype: BoolDType) -> Bool, reduced;
        int_sign(tensor: Int) -> Int, like;
        int_sort(tensor: Int, dim: usize, descending: bool) -> Int, like;
        int_sort_with_indices(tensor: Int, dim: usize, descending: bool) -> (Int, Int), sorted;
        int_argsort(tensor: Int, dim: usize, descending: bool) -> Int, like;
    } };
    (bool, $to:ident) => { $to! {
        bool_not_equal(lhs: Bool, rhs: Bool) -> Bool, broadcast;
        bool_not_equal_elem(lhs: Bool, rhs: Scalar) -> Bool, like;
        bool_xor(lhs: Bool, rhs: Bool) -> Bool, broadcast;
        bool_any(tensor: Bool) -> Bool, one;
        bool_any_dim(tensor: Bool, dim: usize) -> Bool, reduced;
        bool_all(tensor: Bool) -> Bool, one;
        bool_all_dim(tensor: Bool, dim: usize) -> Bool, reduced;
    } };
    (module, $to:ident) => { $to! {
        embedding(weights: Float, indices: Int) -> Float, embedded;
        embedding_backward(weights: Float, grad: Float, indices: Int) -> Float, like;
        layer_norm(tensor: Float, gamma: Float, beta: Option<Float>, epsilon: f64) -> Float, like;
        rfft(signal: Float, dim: usize, n: Option<usize>) -> (Float, Float), spectrum;
        irfft(re: Float, im: Float, dim: usize, n: Option<usize>) -> Float, signal;
    } };
    (quantized, $to:ident) => { $to! {
        dequantize(tensor: Quantized, dtype: FloatDType) -> Float, like;
        q_reshape(tensor: Quantized, shape: Shape) -> Quantized, reshaped;
        q_expand(tensor: Quantized, shape: Shape) -> Quantized, reshaped;
        q_swap_dims(tensor: Quantized, dim1: usize, dim2: usize) -> Quantized, swapped;
        q_select(tensor: Quantized, dim: usize, indices: Int) -> Quantized, selected;
        q_gather(dim: usize, tensor: Quantized, indices: Int) -> Quantized, gathered;
        q_argmax(tensor: Quantized, dim: usize, dtype: IntDType) -> Int, reduced;
        q_argmin(tensor: Quantized, dim: usize, dtype: IntDType) -> Int, reduced;
    } };
    // Those to which an argument is lent.
    (lent, $to:ident) => { $to! {
        quantize(tensor: Float; scheme: QuantScheme; scales: Scales) -> Quantized, like;
        quantize_dynamic(tensor: Float; scheme: QuantScheme) -> Quantized, like;
        q_permute(tensor: Quantized; axes: [usize]) -> Quantized, permuted;
        q_flip(tensor: Quantized; axes: [usize]) -> Quantized, like;
        q_slice(tensor: Quantized; slices: [Slice]) -> Quantized, sliced;
    } };
    // Those that are made from nothing: the device is the last argument but for the type.
    (made, $to:ident) => { $to! {
        int_full(shape: Shape, value: Scalar; dtype: IntDType) -> Int, given;
        int_arange(range: Range<i64>; dtype: IntDType) -> Int, given;
        int_arange_step(range: Range<i64>, step: usize; dtype: IntDType) -> Int, given;
    } };
}
pub(super) use own;

/// The methods of a trait, each of which records one op.
macro_rules! methods {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty, $shapes:ident;)*) => {$(
        fn $name($($arg: <$kind as Kind<B>>::Outer),*) -> <$out as Made<B>>::Outer {
            let _turn = turn();
            let mut call = Call::<B>::new(stringify!($name));
            $(<$kind as Kind<B>>::give($arg, &mut call);)*
            let made = own::shapes::$shapes(&call.inputs, &call.given);
            <$out as Made<B>>::outer(&mut call.record(&made).into_iter())
        }
    )*};
}
pub(super) use methods;

/// The same where an argument is lent.
macro_rules! lent_methods {
    ($($name:ident($tensor:ident: $kind:ty; $lent:ident: $what:ty $(; $last:ident: $last_kind:ty)?) -> $out:ty, $shapes:ident;)*) => {$(
        fn $name($tensor: <$kind as Kind<B>>::Outer, $lent: &$what $(, $last: <$last_kind as Kind<B>>::Outer)?) -> <$out as Made<B>>::Outer {
            let _turn = turn();
            let mut call = Call::<B>::new(stringify!($name));
            <$kind as Kind<B>>::give($tensor, &mut call);
            <$what as Lent<B>>::give($lent, &mut call);
            $(<$last_kind as Kind<B>>::give($last, &mut call);)?
            let made = own::shapes::$shapes(&call.inputs, &call.given);
            <$out as Made<B>>::outer(&mut call.record(&made).into_iter())
        }
    )*};
}
pub(super) use lent_methods;

/// The same for what is made from nothing.
macro_rules! creations {
    ($($name:ident($($arg:ident: $kind:ty),*; $dtype:ident: $ty:ty) -> $out:ty, $shapes:ident;)*) => {$(
        fn $name($($arg: $kind,)* device: &B::Device, $dtype: $ty) -> <$out as Made<B>>::Outer {
            let _turn = turn();
            let mut call = Call::<B>::on(stringify!($name), device);
            $(<$kind as Kind<B>>::give($arg, &mut call);)*
            <$ty as Kind<B>>::give($dtype, &mut call);
            let made = own::shapes::$shapes(&call.inputs, &call.given);
            <$out as Made<B>>::outer(&mut call.record(&made).into_iter())
        }
    )*};
}
pub(super) use creations;

/// What stands in for an argument or a result of a method: a tensor, or a plain value that is written down as numbers.
pub trait Kind<B: Backend> {
    /// What the program hands over.
    type Outer;
    /// What the backend takes.
    type Inner;
    /// Writes it down.
    fn give(value: Self::Outer, call: &mut Call<B>);
    /// Reads it again; `None` if that is not what was written.
    fn take(from: &mut Taking<'_, B>) -> Option<Self::Inner>;
}

/// What a method makes: one tensor or two.
pub trait Made<B: Backend> {
    /// What the program gets.
    type Outer;
    /// What the backend makes.
    type Inner;
    /// The next of the tensors that were recorded.
    fn outer(made: &mut impl Iterator<Item = T<B>>) -> Self::Outer;
    /// Hands over what the backend has made.
    fn put(made: Self::Inner, to: &mut Vec<B::Handle>);
}

/// Tensors of floats.
pub enum Float {}
/// Tensors of integers.
pub enum Int {}
/// Tensors of truth values.
pub enum Bool {}
/// Tensors of quantised floats.
pub enum Quantized {}

/// A method that is being called.
pub struct Call<B: Backend> {
    /// The method's name, then its numbers.
    text: String,
    client: Option<MemfitClient<B>>,
    pub(super) inputs: Vec<TensorIr>,
    pub(super) given: Given,
}

/// What the shapes of outputs follow from, beside the inputs.
#[derive(Default)]
pub(super) struct Given {
    pub(super) shape: Option<Shape>,
    pub(super) range: Option<Range<i64>>,
    pub(super) numbers: Vec<usize>,
    pub(super) slices: Vec<Slice>,
    pub(super) dtype: Option<DType>,
}

impl<B: Backend> Call<B> {
    pub(super) fn new(method: &str) -> Call<B> {
        Call { text: method.to_owned(), client: None, inputs: Vec::new(), given: Given::default() }
    }

    pub(super) fn on(method: &str, device: &B::Device) -> Call<B> {
        Call { client: Some(super::channel::client(device)), ..Call::new(method) }
    }

    pub(super) fn tensor(&mut self, tensor: T<B>) {
        self.client.get_or_insert_with(|| tensor.client.clone());
        self.inputs.push(tensor.into_ir());
    }

    pub(super) fn number(&mut self, number: u64) {
        self.text.push(' ');
        self.text.push_str(&number.to_string());
    }

    /// Records the op, which makes tensors of these shapes and types.
    pub(super) fn record(self, made: &[(Shape, DType)]) -> Vec<T<B>> {
        let client = self.client.expect("a method has a tensor or a device");
        let outputs = made.iter().map(|(shape, dtype)| TensorIr {
            id: client.create_empty_handle(),
            shape: shape.clone(),
            dtype: *dtype,
            status: TensorStatus::NotInit,
        });
        let op = CustomOpIr { id: self.text, inputs: self.inputs, outputs: outputs.collect() };
        client.register(OperationIr::Custom(op))
    }
}

/// An own op that is about to run.
pub struct Taking<'a, B: Backend> {
    handle: &'a dyn Fn(&TensorIr) -> B::Handle,
    inputs: std::slice::Iter<'a, TensorIr>,
    numbers: std::str::Split<'a, char>,
    device: &'a B::Device,
}

impl<B: Backend> Taking<'_, B> {
    pub(super) fn tensor(&mut self) -> Option<TensorHandle<B::Handle>> {
        let input = self.inputs.next()?;
        Some(TensorHandle { handle: (self.handle)(input), shape: input.shape.clone() })
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.numbers.next()?.parse().ok()
    }
}

/// The method that `op` records.
pub(super) fn method(op: &CustomOpIr) -> &str {
    op.id.split(' ').next().unwrap_or_default()
}

/// Whether `op` is one of these.
pub(super) fn is_own(op: &CustomOpIr) -> bool {
    let is_own = |list: &[&str]| list.contains(&method(op));
    METHODS.iter().any(|list| is_own(list))
}

macro_rules! names {
    ($($name:ident($($rest:tt)*) -> $out:ty, $shapes:ident;)*) => { &[$(stringify!($name)),*] };
}

/// All methods.
const METHODS: [&[&str]; 8] = [
    own!(activation, names),
    own!(float, names),
    own!(int, names),
    own!(bool, names),
    own!(module, names),
    own!(quantized, names),
    own!(lent, names),
    own!(made, names),
];

/// Runs `op` on the backend; `handle` hands over inputs. `None` if that is not an own op.
pub(super) fn run<B: Backend>(
    op: &CustomOpIr,
    device: &B::Device,
    handle: &dyn Fn(&TensorIr) -> B::Handle,
) -> Option<Vec<B::Handle>> {
    let mut numbers = op.id.split(' ');
    let method = numbers.next()?;
    let mut from = Taking { handle, inputs: op.inputs.iter(), numbers, device };
    let from = &mut from;
    let mut made = Vec::with_capacity(op.outputs.len());
    macro_rules! try_methods {
        ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty, $shapes:ident;)*) => {$(
            if method == stringify!($name) {
                $(let $arg = <$kind as Kind<B>>::take(from)?;)*
                <$out as Made<B>>::put(B::$name($($arg),*), &mut made);
                return Some(made);
            }
        )*};
    }
    macro_rules! try_lending {
        ($($name:ident($tensor:ident: $kind:ty; $lent:ident: $what:ty $(; $last:ident: $last_kind:ty)?) -> $out:ty, $shapes:ident;)*) => {$(
            if method == stringify!($name) {
                let $tensor = <$kind as Kind<B>>::take(from)?;
                let $lent = <$what as Lent<B>>::take(from)?;
                $(let $last = <$last_kind as Kind<B>>::take(from)?;)?
                <$out as Made<B>>::put(B::$name($tensor, &$lent $(, $last)?), &mut made);
                return Some(made);
            }
        )*};
    }
    macro_rules! try_makers {
        ($($name:ident($($arg:ident: $kind:ty),*; $dtype:ident: $ty:ty) -> $out:ty, $shapes:ident;)*) => {$(
            if method == stringify!($name) {
                $(let $arg = <$kind as Kind<B>>::take(from)?;)*
                let $dtype = <$ty as Kind<B>>::take(from)?;
                <$out as Made<B>>::put(B::$name($($arg,)* from.device, $dtype), &mut made);
                return Some(made);
            }
        )*};
    }
    own!(activation, try_methods);
    own!(float, try_methods);
    own!(int, try_methods);
    own!(bool, try_methods);
    own!(module, try_methods);
    own!(quantized, try_methods);
    own!(lent, try_lending);
    own!(made, try_makers);
    None
}

/// Shapes and types of outputs.
pub(super) mod shapes {
    use super::{DType, Given, Shape, TensorIr};

    fn dtype(inputs: &[TensorIr], given: &Given) -> DType {
        given.dtype.unwrap_or_else(|| inputs[0].dtype)
    }

    /// As the first input.
    pub(in super::super) fn like(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        [(inputs[0].shape.clone(), dtype(inputs, given))]
    }

    /// As the first input, and the indices.
    pub(in super::super) fn sorted(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 2] {
        let shape = &inputs[0].shape;
        [(shape.clone(), inputs[0].dtype), (shape.clone(), dtype(inputs, given))]
    }

    /// As two inputs, of which dimensions of one element are repeated.
    pub(in super::super) fn broadcast(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        let sizes = inputs[0].shape.iter().zip(inputs[1].shape.iter());
        let sizes: Vec<usize> = sizes.map(|(&one, &other)| if one == 1 { other } else { one }).collect();
        [(sizes.into(), dtype(inputs, given))]
    }

    /// One element.
    pub(in super::super) fn one(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        [([1].into(), dtype(inputs, given))]
    }

    /// A row of the first input for each element of the second.
    pub(in super::super) fn embedded(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        let row = inputs[0].shape.iter().skip(1);
        [(inputs[1].shape.iter().chain(row).copied().collect::<Vec<_>>().into(), dtype(inputs, given))]
    }

    /// Batch and channels of the first input, height and width of the second.
    pub(in super::super) fn sampled(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        let (images, grid) = (&inputs[0].shape, &inputs[1].shape);
        [([images[0], images[1], grid[1], grid[2]].into(), dtype(inputs, given))]
    }

    /// The first input with another size along the dimension that was given first; `size` is told that which was given second,
    /// and that of the input.
    fn along(
        inputs: &[TensorIr],
        given: &Given,
        size: impl Fn(Option<usize>, usize) -> usize,
    ) -> (Shape, DType) {
        let mut sizes = inputs[0].shape.to_vec();
        if let Some(along) = given.numbers.first().and_then(|&dim| sizes.get_mut(dim)) {
            *along = size(given.numbers.get(1).copied(), *along);
        }
        (sizes.into(), dtype(inputs, given))
    }

    /// As the first input, with one element along a dimension.
    pub(in super::super) fn reduced(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        [along(inputs, given, |_, _| 1)]
    }

    /// Two halves of the spectrum of as many samples as were asked for, or as there are.
    pub(in super::super) fn spectrum(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 2] {
        let half = along(inputs, given, |asked, samples| asked.unwrap_or(samples) / 2 + 1);
        [half.clone(), half]
    }

    /// As many samples as were asked for, or as half a spectrum stands for.
    pub(in super::super) fn signal(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        [along(inputs, given, |asked, half| asked.unwrap_or(2 * half.saturating_sub(1)))]
    }

    fn shaped(inputs: &[TensorIr], given: &Given, sizes: Vec<usize>) -> [(Shape, DType); 1] {
        [(sizes.into(), dtype(inputs, given))]
    }

    /// As the first input, in the shape that was given.
    pub(in super::super) fn reshaped(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        shaped(inputs, given, given.shape.as_ref().map_or_else(Vec::new, |shape| shape.to_vec()))
    }

    /// As the first input, with the two dimensions swapped that were given.
    pub(in super::super) fn swapped(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        let mut sizes = inputs[0].shape.to_vec();
        if let [one, other] = given.numbers[..] {
            sizes.swap(one, other);
        }
        shaped(inputs, given, sizes)
    }

    /// As the first input, its dimensions in the order that was given.
    pub(in super::super) fn permuted(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        shaped(inputs, given, given.numbers.iter().map(|&axis| inputs[0].shape[axis]).collect())
    }

    /// As the first input, with an element for each index along a dimension.
    pub(in super::super) fn selected(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        [along(inputs, given, |_, _| inputs[1].shape.num_elements())]
    }

    /// As the indices, which are the second input.
    pub(in super::super) fn gathered(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        shaped(inputs, given, inputs[1].shape.to_vec())
    }

    /// What the slices that were given leave of the first input.
    pub(in super::super) fn sliced(inputs: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        let mut sizes = inputs[0].shape.to_vec();
        let slices = sizes.iter_mut().zip(&given.slices);
        slices.for_each(|(size, slice)| *size = slice.output_size(*size));
        shaped(inputs, given, sizes)
    }

    /// The shape that was given, or as many elements as a range has.
    pub(in super::super) fn given(_: &[TensorIr], given: &Given) -> [(Shape, DType); 1] {
        let range = given.range.clone().unwrap_or_default();
        let length = range.step_by(given.numbers.first().copied().unwrap_or(1)).count();
        let shape = given.shape.clone().unwrap_or_else(|| [length].into());
        [(shape, given.dtype.expect("what is made from nothing has a type"))]
    }
}
