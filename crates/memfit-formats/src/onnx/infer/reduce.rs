//! Many elements to one.

use super::super::call::{Answer, Call};
use super::super::fold;
use super::super::tensor::{Tensor, axis};

/// Over the axes in an attribute or in operand 1; over all of them if none are named.
pub(crate) fn reduce(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let axes = match call.axes("axes", 1)? {
        Some(axes) => axes.iter().map(|&at| axis(at, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => Vec::new(),
    };
    if axes.is_empty() && call.flag("noop_with_empty_axes", false)? {
        return Ok(vec![x.clone()]);
    }
    let axes = if axes.is_empty() { (0..x.rank()).collect() } else { axes };
    let shape: Vec<u64> =
        x.shape.iter().enumerate().map(|(at, &dim)| if axes.contains(&at) { 1 } else { dim }).collect();
    let known = fold::reduce(call.node.op_type(), x, &axes, &shape)?;
    let kept = if call.flag("keepdims", true)? {
        shape
    } else {
        x.shape.iter().enumerate().filter(|(at, _)| !axes.contains(at)).map(|(_, &dim)| dim).collect()
    };
    Ok(vec![match known {
        Some(known) => Tensor::constant(x.elem, kept, Some(known)),
        None => x.like(kept),
    }])
}

/// A loss of each sample, or one of all; the second output is as large as operand 0.
pub(crate) fn loss(call: &Call<'_>) -> Answer {
    let (x, target) = (call.ranked(0, 2..=usize::MAX)?, call.input(1)?);
    let each = call.string("reduction", "mean")? == "none";
    Ok(vec![x.like(if each { target.shape.clone() } else { Vec::new() }), x.like(x.shape.clone())])
}
