//! To quantised numbers and back.

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::tensor::{Tensor, Trouble, refuse};

fn elem(call: &Call<'_>, name: &str, default: Elem) -> Result<Elem, Trouble> {
    match call.int(name, 0)? {
        0 => Ok(default),
        code => match i32::try_from(code).ok().and_then(Elem::by_code) {
            Some(elem) => Ok(elem),
            None => refuse!("attribute `{name}` is `{code}`, which is not an element type"),
        },
    }
}

/// To the type of the zero point, or the one in an attribute, or `uint8`.
pub(crate) fn quantize(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    call.input(1)?;
    let default = call.optional(2).map_or(Elem::UINT8, |zero| zero.elem);
    Ok(vec![Tensor::new(elem(call, "output_dtype", default)?, x.shape.clone())])
}

/// To the type of the scale, or the one in an attribute.
pub(crate) fn dequantize(call: &Call<'_>) -> Answer {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    Ok(vec![Tensor::new(elem(call, "output_dtype", scale.elem)?, x.shape.clone())])
}

/// To `uint8` with a scale and a zero point of its own.
pub(crate) fn dynamic(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let scalar = |elem| Tensor::new(elem, Vec::new());
    Ok(vec![Tensor::new(Elem::UINT8, x.shape.clone()), scalar(Elem::FLOAT), scalar(Elem::UINT8)])
}
