//! Images of another size.

use super::super::call::{Answer, Call};
use super::super::fold;
use super::super::tensor::{Known, Tensor, Trouble, axis, lengths, refuse};

/// `dim × scale`, rounded down, in single precision as runtimes do.
fn scaled(dim: u64, scale: f64) -> Result<u64, Trouble> {
    #[allow(clippy::cast_possible_truncation, reason = "scales are singles in the file")]
    let product = (dim as f32 * scale as f32).floor();
    match fold::to_int(product.into()).and_then(|dim| u64::try_from(dim).ok()) {
        Some(dim) if scale > 0.0 => Ok(dim),
        _ => refuse!("dimension `{dim}` cannot be scaled by `{scale}`"),
    }
}

fn by_scales(x: &Tensor, axes: &[usize], scales: &[f64]) -> Answer {
    if scales.len() != axes.len() {
        refuse!("`{}` scales for `{}` dimensions", scales.len(), axes.len());
    }
    let mut shape = x.shape.clone();
    for (&at, &scale) in axes.iter().zip(scales) {
        shape[at] = scaled(shape[at], scale)?;
    }
    Ok(vec![x.like(shape)])
}

fn known_scales<'c>(call: &'c Call<'_>, at: usize) -> Result<&'c [f64], Trouble> {
    match call.known(at)? {
        Known::Floats(scales) => Ok(scales),
        Known::Ints(_) => refuse!("operand {at} must hold floats"),
    }
}

/// `Upsample`: scales in an attribute, later in operand 1.
pub(crate) fn upsample(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let axes: Vec<usize> = (0..x.rank()).collect();
    match call.floats("scales")? {
        Some(scales) => by_scales(x, &axes, &scales.iter().map(|&scale| scale.into()).collect::<Vec<f64>>()),
        None => by_scales(x, &axes, known_scales(call, 1)?),
    }
}

/// `Resize`: scales or sizes, of all dimensions or of some.
pub(crate) fn resize(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let axes = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|&at| axis(at, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).collect(),
    };
    if call.opset < 11 {
        return by_scales(x, &axes, known_scales(call, 1)?);
    }
    if call.optional(3).is_none() {
        return by_scales(x, &axes, known_scales(call, 2)?);
    }
    let mut sizes = lengths(call.known_ints(3)?)?;
    if sizes.len() != axes.len() {
        refuse!("`{}` sizes for `{}` dimensions", sizes.len(), axes.len());
    }
    let ratios = || sizes.iter().zip(&axes).map(|(&size, &at)| size as f64 / x.shape[at] as f64);
    let one = match call.string("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => None,
        "not_larger" => Some(ratios().fold(f64::INFINITY, f64::min)),
        "not_smaller" => Some(ratios().fold(0.0, f64::max)),
        other => refuse!("attribute `keep_aspect_ratio_policy` is `{other}`"),
    };
    if let Some(one) = one {
        for (size, &at) in sizes.iter_mut().zip(&axes) {
            let dim =
                fold::to_int((x.shape[at] as f64 * one).round()).and_then(|dim| u64::try_from(dim).ok());
            let Some(dim) = dim else { refuse!("dimension `{}` cannot be scaled by `{one}`", x.shape[at]) };
            *size = dim;
        }
    }
    let mut shape = x.shape.clone();
    for (&at, size) in axes.iter().zip(sizes) {
        shape[at] = size;
    }
    Ok(vec![x.like(shape)])
}
