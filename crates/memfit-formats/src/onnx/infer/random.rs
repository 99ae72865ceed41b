//! Draws from the random generator.

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::tensor::{Tensor, Trouble, dims, refuse};

/// The type in attribute `dtype`, or `default`.
pub(crate) fn dtype(call: &Call<'_>, default: Elem) -> Result<Elem, Trouble> {
    let code = call.int("dtype", default.code().into())?;
    match i32::try_from(code).ok().and_then(Elem::by_code) {
        Some(elem) => Ok(elem),
        None => refuse!("attribute `dtype` is `{code}`, which is not an element type"),
    }
}

/// The shape in an attribute.
pub(crate) fn shaped(call: &Call<'_>) -> Answer {
    let Some(shape) = call.ints("shape")? else { refuse!("attribute `shape` is missing") };
    Ok(vec![Tensor::new(dtype(call, Elem::FLOAT)?, dims(shape)?)])
}

/// The shape of operand 0.
pub(crate) fn like(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    Ok(vec![Tensor::new(dtype(call, x.elem)?, x.shape.clone())])
}

/// Some samples for each row.
pub(crate) fn multinomial(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 2..=2)?;
    Ok(vec![Tensor::new(dtype(call, Elem::INT32)?, vec![x.shape[0], call.count("sample_size", 1)?])])
}
