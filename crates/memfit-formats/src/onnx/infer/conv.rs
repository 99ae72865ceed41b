//! Windows that slide over the dimensions behind batch and channels.

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::tensor::{Tensor, Trouble, lengths, refuse, show};

/// Window, stride, dilation and padding of one dimension.
struct Slide {
    size: u64,
    stride: u64,
    dilation: u64,
    before: u64,
    after: u64,
}

/// How outputs at the border are counted.
#[derive(PartialEq, Eq)]
enum Padding {
    Given,
    Same,
    Valid,
}

/// Attribute `name`, one number for each of `rank` dimensions, or `default`.
fn each(call: &Call<'_>, name: &str, rank: usize, default: u64) -> Result<Vec<u64>, Trouble> {
    let Some(all) = call.ints(name)? else { return Ok(vec![default; rank]) };
    if all.len() != rank {
        refuse!("attribute `{name}` has `{}` numbers, `{rank}` are needed", all.len());
    }
    lengths(all).map_err(|_| Trouble::new(format!("attribute `{name}` has a negative number")))
}

fn slides(call: &Call<'_>, window: &[u64]) -> Result<(Vec<Slide>, Padding), Trouble> {
    let rank = window.len();
    let (strides, dilations) = (each(call, "strides", rank, 1)?, each(call, "dilations", rank, 1)?);
    let pads = each(call, "pads", 2 * rank, 0)?;
    let padding = match call.string("auto_pad", "NOTSET")? {
        "NOTSET" | "" => Padding::Given,
        "SAME_UPPER" | "SAME_LOWER" => Padding::Same,
        "VALID" => Padding::Valid,
        other => refuse!("attribute `auto_pad` is `{other}`"),
    };
    let given = padding == Padding::Given;
    let slide = |at: usize| Slide {
        size: window[at],
        stride: strides[at],
        dilation: dilations[at],
        before: if given { pads[at] } else { 0 },
        after: if given { pads[at + rank] } else { 0 },
    };
    let slides: Vec<Slide> = (0..rank).map(slide).collect();
    if slides.iter().any(|slide| slide.size == 0 || slide.stride == 0 || slide.dilation == 0) {
        refuse!("a window, stride or dilation is `0`");
    }
    Ok((slides, padding))
}

/// Places at which a window stands on `dim` elements; the last may overhang if `ceil`.
fn places(dim: u64, slide: &Slide, padding: &Padding, ceil: bool) -> Result<u64, Trouble> {
    if *padding == Padding::Same {
        return Ok(dim.div_ceil(slide.stride));
    }
    let padded = dim.checked_add(slide.before).and_then(|sum| sum.checked_add(slide.after));
    let reach = (slide.size - 1).checked_mul(slide.dilation).and_then(|reach| reach.checked_add(1));
    let (Some(padded), Some(reach)) = (padded, reach) else {
        refuse!("its window or padding overflows 64 bits")
    };
    let Some(gap) = padded.checked_sub(reach) else {
        refuse!("its window of `{reach}` is larger than the padded dimension of `{padded}`");
    };
    if !ceil {
        return Ok(gap / slide.stride + 1);
    }
    let places = gap.div_ceil(slide.stride) + 1;
    // A window that would stand wholly in the padding behind is left out.
    let starts = (places - 1).checked_mul(slide.stride);
    let outside = starts.is_none_or(|starts| starts >= dim.saturating_add(slide.before));
    Ok(if outside && places > 1 { places - 1 } else { places })
}

/// Spatial shape under `window`.
fn slid(call: &Call<'_>, spatial: &[u64], window: &[u64]) -> Result<Vec<u64>, Trouble> {
    let (slides, padding) = slides(call, window)?;
    let ceil = call.flag("ceil_mode", false)?;
    spatial.iter().zip(&slides).map(|(&dim, slide)| places(dim, slide, &padding, ceil)).collect()
}

/// Shape of a convolution of operand 0 with the filters in operand `at`.
fn conv_shape(call: &Call<'_>, at: usize) -> Result<Vec<u64>, Trouble> {
    let (x, w) = (call.ranked(0, 3..=usize::MAX)?, call.input(at)?);
    if w.rank() != x.rank() {
        refuse!("shapes `{}` and `{}` differ in rank", show(&x.shape), show(&w.shape));
    }
    let window = &w.shape[2..];
    if call.ints("kernel_shape")?.is_some() && each(call, "kernel_shape", window.len(), 1)? != window {
        refuse!("attribute `kernel_shape` is not that of its filters, `{}`", show(&w.shape));
    }
    let group = call.count("group", 1)?;
    if w.shape[1].checked_mul(group) != Some(x.shape[1]) || group == 0 || !w.shape[0].is_multiple_of(group) {
        refuse!("filters `{}` in `{group}` groups do not fit shape `{}`", show(&w.shape), show(&x.shape));
    }
    let mut shape = vec![x.shape[0], w.shape[0]];
    shape.extend(slid(call, &x.shape[2..], window)?);
    Ok(shape)
}

/// Convolution.
pub(crate) fn conv(call: &Call<'_>) -> Answer {
    let shape = conv_shape(call, 1)?;
    Ok(vec![call.input(0)?.like(shape)])
}

/// Convolution of 8-bit integers to 32 bits.
pub(crate) fn conv_integer(call: &Call<'_>) -> Answer {
    Ok(vec![Tensor::new(Elem::INT32, conv_shape(call, 1)?)])
}

/// Convolution of quantised tensors; the result has the type of operand 7, its zero point.
pub(crate) fn qlinear_conv(call: &Call<'_>) -> Answer {
    Ok(vec![call.input(7)?.like(conv_shape(call, 3)?)])
}

/// Multiply-adds for each output element of a convolution with the filters in operand `at`.
pub(crate) fn filter(call: &Call<'_>, at: usize) -> f64 {
    call.optional(at).map_or(0.0, |w| w.shape.iter().skip(1).map(|&dim| dim as f64).product())
}

/// The gradient of a convolution: each input element is spread over a window.
pub(crate) fn conv_transpose(call: &Call<'_>) -> Answer {
    let (x, w) = (call.ranked(0, 3..=usize::MAX)?, call.input(1)?);
    if w.rank() != x.rank() || w.shape[0] != x.shape[1] {
        refuse!("filters `{}` do not fit shape `{}`", show(&w.shape), show(&x.shape));
    }
    let rank = x.rank() - 2;
    let Some(channels) = w.shape[1].checked_mul(call.count("group", 1)?) else {
        refuse!("its channels overflow 64 bits");
    };
    let mut shape = vec![x.shape[0], channels];
    if call.ints("output_shape")?.is_some_and(|given| given.len() == rank) {
        shape.extend(each(call, "output_shape", rank, 0)?);
        return Ok(vec![x.like(shape)]);
    }
    let extra = each(call, "output_padding", rank, 0)?;
    let (slides, padding) = slides(call, &w.shape[2..])?;
    for ((&dim, slide), extra) in x.shape[2..].iter().zip(&slides).zip(extra) {
        let (dim, stride) = (i128::from(dim), i128::from(slide.stride));
        let reach = (i128::from(slide.size) - 1) * i128::from(slide.dilation) + 1;
        let full = stride * (dim - 1) + i128::from(extra) + reach;
        let cut = i128::from(slide.before) + i128::from(slide.after);
        let out = if padding == Padding::Same { stride * dim } else { full - cut };
        match u64::try_from(out) {
            Ok(out) => shape.push(out),
            Err(_) => refuse!("its output would have dimension `{out}`"),
        }
    }
    Ok(vec![x.like(shape)])
}

/// Largest, mean or norm of each window; with the place of the largest as a second output.
pub(crate) fn pool(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 3..=usize::MAX)?;
    if !call.has("kernel_shape") {
        refuse!("attribute `kernel_shape` is missing");
    }
    let window = each(call, "kernel_shape", x.rank() - 2, 1)?;
    let mut shape = x.shape[..2].to_vec();
    shape.extend(slid(call, &x.shape[2..], &window)?);
    Ok(vec![x.like(shape.clone()), Tensor::new(Elem::INT64, shape)])
}

/// Elements in the window of a pool.
pub(crate) fn pool_window(call: &Call<'_>) -> f64 {
    let window = call.ints("kernel_shape").ok().flatten().unwrap_or_default();
    window.iter().map(|&dim| dim as f64).product()
}

/// One element for each channel.
pub(crate) fn global_pool(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 2..=usize::MAX)?;
    let mut shape = x.shape[..2].to_vec();
    shape.resize(x.rank(), 1);
    Ok(vec![x.like(shape)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_at_the_border() {
        let slide = |size, stride, before, after| Slide { size, stride, dilation: 1, before, after };
        let count =
            |dim, slide: Slide, ceil| places(dim, &slide, &Padding::Given, ceil).map_err(|t| t.message);
        assert_eq!(count(224, slide(7, 2, 3, 3), false), Ok(112));
        assert_eq!(count(112, slide(3, 2, 0, 0), true), Ok(56));
        // The fourth window would start at 6, behind 5 + 1.
        assert_eq!(count(5, slide(2, 2, 1, 1), true), Ok(3));
        assert_eq!(places(5, &slide(3, 2, 0, 0), &Padding::Same, false), Ok(3));
        assert_eq!(
            count(5, slide(7, 1, 0, 0), false),
            Err("its window of `7` is larger than the padded dimension of `5`".to_owned())
        );
        assert!(count(u64::MAX, slide(1, 1, 1, 0), true).is_err());
        assert_eq!(count(u64::MAX, slide(1, 1, 0, 0), true), Ok(u64::MAX));
    }
}
