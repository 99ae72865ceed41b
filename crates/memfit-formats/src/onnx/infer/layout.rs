//! Elements moved, none computed.

use super::super::call::{Answer, Call};
use super::super::fold;
use super::super::tensor::{
    MAX_KNOWN, MAX_RANK, Tensor, Trouble, axis, dims, lengths, product, refuse, show,
};
use super::shapes::clamped;

/// Dimensions in another order; in the reverse one without an attribute.
pub(crate) fn transpose(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let reverse: Vec<usize> = (0..x.rank()).rev().collect();
    let perm = match call.ints("perm")? {
        None => reverse,
        Some(perm) => {
            let perm = perm.iter().map(|&at| axis(at, x.rank())).collect::<Result<Vec<_>, _>>()?;
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..x.rank()) {
                refuse!("attribute `perm` is not an order of the `{}` dimensions of operand 0", x.rank());
            }
            perm
        }
    };
    let shape = perm.iter().map(|&at| x.shape[at]).collect();
    Ok(vec![fold::remap(x, shape, |at| {
        let mut from = vec![0; perm.len()];
        for (&x, &axis) in at.iter().zip(&perm) {
            from[axis] = x;
        }
        from
    })])
}

/// One after another along an axis.
pub(crate) fn concat(call: &Call<'_>) -> Answer {
    let first = call.input(0)?;
    let at = call.axis("axis", 1, first.rank())?;
    let mut shape = first.shape.clone();
    let mut parts = vec![first];
    for index in 1..call.inputs.len() {
        let next = call.input(index)?;
        let fits = |axis: usize| axis == at || next.shape.get(axis) == first.shape.get(axis);
        if next.rank() != first.rank() || !(0..first.rank()).all(fits) {
            refuse!("shapes `{}` and `{}` do not join at axis {at}", show(&first.shape), show(&next.shape));
        }
        if next.elem != first.elem {
            refuse!("operand {index} has type `{}`, operand 0 has `{}`", next.elem.name(), first.elem.name());
        }
        shape[at] = shape[at]
            .checked_add(next.shape[at])
            .ok_or_else(|| Trouble::new("its length overflows 64 bits"))?;
        parts.push(next);
    }
    let count = product(&shape)?;
    // Nothing to copy where another dimension is 0, however large the ones before are.
    let rows = if count == 0 { 0 } else { product(&shape[..at])? };
    let small = count <= MAX_KNOWN && rows.saturating_mul(parts.len() as u64) <= 16 * MAX_KNOWN;
    let known =
        if small { parts.iter().map(|part| part.known.clone()).collect::<Option<Vec<_>>>() } else { None };
    let known = known.and_then(|known| {
        let mut pieces = Vec::new();
        for row in 0..rows {
            for (part, known) in parts.iter().zip(&known) {
                let length = product(&part.shape[at..]).ok()?;
                let picked: Vec<usize> =
                    (row * length..(row + 1) * length).map(usize::try_from).collect::<Result<_, _>>().ok()?;
                pieces.push(known.pick(&picked)?);
            }
        }
        fold::join(&pieces)
    });
    Ok(vec![match known {
        Some(known) => Tensor::constant(first.elem, shape, Some(known)),
        None => first.like(shape),
    }])
}

/// Cut along an axis into pieces of given or equal lengths.
pub(crate) fn split(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let at = call.axis("axis", 0, x.rank())?;
    let outputs = call.node.output.len() as u64;
    let lengths: Vec<u64> = match call.axes("split", 1)? {
        Some(given) => lengths(given)?,
        None => {
            let pieces = call.count("num_outputs", outputs)?;
            if pieces == 0 || pieces > outputs.max(1) {
                refuse!("attribute `num_outputs` is `{pieces}`, it has `{outputs}` outputs");
            }
            let chunk = x.shape[at].div_ceil(pieces);
            (0..pieces)
                .map(|piece| chunk.min(x.shape[at].saturating_sub(piece.saturating_mul(chunk))))
                .collect()
        }
    };
    let total = lengths.iter().try_fold(0u64, |sum, &length| sum.checked_add(length));
    if total != Some(x.shape[at]) {
        refuse!("its pieces do not add up to dimension {at} of `{}`", show(&x.shape));
    }
    let mut start = 0;
    let piece = |length: u64| {
        let mut shape = x.shape.clone();
        shape[at] = length;
        let piece = fold::remap(x, shape, |to| {
            let mut from = to.to_vec();
            from[at] += start;
            from
        });
        start += length;
        piece
    };
    Ok(lengths.into_iter().map(piece).collect())
}

/// Every `step`th index of `[start, end)` along some axes.
pub(crate) fn slice(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let by_attribute = call.opset < 10;
    let given = |name: &str, at: usize| if by_attribute { call.ints(name) } else { call.optional_ints(at) };
    let (Some(starts), Some(ends)) = (given("starts", 1)?, given("ends", 2)?) else {
        refuse!("its starts or ends are missing");
    };
    let (axes, steps) = (given("axes", 3)?, if by_attribute { None } else { call.optional_ints(4)? });
    if starts.len() > x.rank()
        || ends.len() != starts.len()
        || axes.is_some_and(|axes| axes.len() != starts.len())
        || steps.is_some_and(|steps| steps.len() != starts.len())
    {
        refuse!("its starts, ends, axes and steps differ in length, or are more than dimensions");
    }
    let mut shape = x.shape.clone();
    let mut from = vec![(0i128, 1i128); x.rank()];
    for (index, (&start, &end)) in starts.iter().zip(ends).enumerate() {
        let at = match axes {
            Some(axes) => axis(axes[index], x.rank())?,
            None => index,
        };
        let step = steps.map_or(1, |steps| steps[index]);
        let len = x.shape[at];
        let (first, length) = match step {
            0 => refuse!("its step along axis {at} is `0`"),
            1.. => {
                let (start, end) = (clamped(start, len), clamped(end, len));
                (i128::from(start), end.saturating_sub(start).div_ceil(step.unsigned_abs()))
            }
            _ => {
                // Backwards: from the last index at most, down to before the first at least.
                let low = |at: i64| {
                    let at = i128::from(at);
                    (if at < 0 { at + i128::from(len) } else { at }).clamp(-1, i128::from(len) - 1)
                };
                let (start, end) = (low(start), low(end));
                let gap = u64::try_from(start - end).unwrap_or(0);
                (start, gap.div_ceil(step.unsigned_abs()))
            }
        };
        shape[at] = length;
        from[at] = (first, step.into());
    }
    if shape == x.shape && from.iter().all(|&(first, step)| (first, step) == (0, 1)) {
        return Ok(vec![x.clone()]);
    }
    Ok(vec![fold::remap(x, shape, |at| {
        let index =
            |(&at, &(first, step)): (&u64, &(i128, i128))| u64::try_from(first + step * i128::from(at));
        at.iter().zip(&from).map(|pair| index(pair).unwrap_or(u64::MAX)).collect()
    })])
}

/// Each dimension repeated.
pub(crate) fn tile(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let repeats = dims(call.known_ints(1)?)?;
    if repeats.len() != x.rank() {
        refuse!("`{}` repeats for `{}` dimensions", repeats.len(), x.rank());
    }
    let dim = |(&dim, &times): (&u64, &u64)| {
        dim.checked_mul(times)
            .ok_or_else(|| Trouble::new(format!("dimension `{dim}` × `{times}` overflows 64 bits")))
    };
    let shape = x.shape.iter().zip(&repeats).map(dim).collect::<Result<_, _>>()?;
    Ok(vec![fold::remap(x, shape, |at| at.iter().zip(&x.shape).map(|(&at, &dim)| at % dim).collect())])
}

/// Elements added, or with negative numbers removed, at both ends of dimensions.
pub(crate) fn pad(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let pads = match call.ints("pads")? {
        Some(pads) => Some(pads),
        None if call.opset < 2 => call.ints("paddings")?,
        None => call.optional_ints(1)?,
    };
    let Some(pads) = pads else { refuse!("its pads are missing") };
    let axes = match call.optional_ints(3)? {
        Some(axes) if axes.len() > MAX_RANK => refuse!("more axes than dimensions"),
        Some(axes) => axes.iter().map(|&at| axis(at, x.rank())).collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        refuse!("`{}` pads for `{}` dimensions", pads.len(), axes.len());
    }
    let mut shape = x.shape.clone();
    for (index, &at) in axes.iter().enumerate() {
        let padded = i128::from(shape[at]) + i128::from(pads[index]) + i128::from(pads[index + axes.len()]);
        let Ok(padded) = u64::try_from(padded) else {
            refuse!("dimension {at} of `{}` is padded to `{padded}`", show(&x.shape));
        };
        shape[at] = padded;
    }
    Ok(vec![if shape == x.shape && pads.iter().all(|&pad| pad == 0) { x.clone() } else { x.like(shape) }])
}

fn block<'c>(call: &'c Call<'_>) -> Result<(&'c Tensor, u64, u64), Trouble> {
    let x = call.ranked(0, 4..=4)?;
    let size = call.count("blocksize", 0)?;
    match size.checked_mul(size) {
        Some(square @ 1..) => Ok((x, size, square)),
        _ => refuse!("attribute `blocksize` is `{size}`"),
    }
}

/// Channels to squares of pixels.
pub(crate) fn depth_to_space(call: &Call<'_>) -> Answer {
    let (x, size, square) = block(call)?;
    let (n, c, h, w) = (x.shape[0], x.shape[1], x.shape[2], x.shape[3]);
    let (Some(h), Some(w), true) = (h.checked_mul(size), w.checked_mul(size), c.is_multiple_of(square))
    else {
        refuse!("shape `{}` does not divide into blocks of `{size}`", show(&x.shape));
    };
    Ok(vec![x.like(vec![n, c / square, h, w])])
}

/// Squares of pixels to channels.
pub(crate) fn space_to_depth(call: &Call<'_>) -> Answer {
    let (x, size, square) = block(call)?;
    let (n, c, h, w) = (x.shape[0], x.shape[1], x.shape[2], x.shape[3]);
    match c.checked_mul(square) {
        Some(c) if h.is_multiple_of(size) && w.is_multiple_of(size) => {
            Ok(vec![x.like(vec![n, c, h / size, w / size])])
        }
        _ => refuse!("shape `{}` does not divide into blocks of `{size}`", show(&x.shape)),
    }
}

/// Moved within the same shape: a triangle, reversed sequences.
pub(crate) fn same(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    Ok(vec![x.like(x.shape.clone())])
}
