//! Elements chosen by other elements.

use super::super::call::{Answer, Call, run_time};
use super::super::elem::Elem;
use super::super::fold;
use super::super::tensor::{Known, Tensor, is_int, product, refuse, show};

/// Rows of operand 0 along an axis, one for each index.
pub(crate) fn gather(call: &Call<'_>) -> Answer {
    let (x, indices) = (call.ranked(0, 1..=usize::MAX)?, call.input(1)?);
    let at = call.axis("axis", 0, x.rank())?;
    if !is_int(indices.elem) {
        refuse!("its indices have type `{}`", indices.elem.name());
    }
    let mut shape = x.shape[..at].to_vec();
    shape.extend(&indices.shape);
    shape.extend(&x.shape[at + 1..]);
    let (Some(Known::Ints(chosen)), Some(_)) = (&indices.known, &x.known) else {
        return Ok(vec![x.like(shape)]);
    };
    let mut rows = Vec::with_capacity(chosen.len());
    for &index in chosen.iter() {
        let row = if index < 0 { i128::from(index) + i128::from(x.shape[at]) } else { index.into() };
        match u64::try_from(row) {
            Ok(row) if row < x.shape[at] => rows.push(row),
            _ => refuse!("index `{index}` is outside of dimension {at} of `{}`", show(&x.shape)),
        }
    }
    let inner = indices.rank();
    Ok(vec![fold::remap(x, shape, |to| {
        let chosen = to[at..at + inner].iter().zip(&indices.shape).fold(0, |flat, (&x, &dim)| flat * dim + x);
        let row =
            usize::try_from(chosen).ok().and_then(|chosen| rows.get(chosen).copied()).unwrap_or(u64::MAX);
        let mut from = to[..at].to_vec();
        from.push(row);
        from.extend(&to[at + inner..]);
        from
    })])
}

/// One element for each index; the shape is that of the indices.
pub(crate) fn gather_elements(call: &Call<'_>) -> Answer {
    let (x, indices) = (call.ranked(0, 1..=usize::MAX)?, call.input(1)?);
    call.axis("axis", 0, x.rank())?;
    if indices.rank() != x.rank() {
        refuse!("shapes `{}` and `{}` differ in rank", show(&x.shape), show(&indices.shape));
    }
    Ok(vec![x.like(indices.shape.clone())])
}

/// Slices named by the rows of operand 1.
pub(crate) fn gather_nd(call: &Call<'_>) -> Answer {
    let (x, indices) = (call.ranked(0, 1..=usize::MAX)?, call.ranked(1, 1..=usize::MAX)?);
    let batch = usize::try_from(call.count("batch_dims", 0)?).unwrap_or(usize::MAX);
    let (rows, depth) = indices.shape.split_at(indices.rank() - 1);
    let depth = usize::try_from(depth[0]).unwrap_or(usize::MAX);
    let Some(skipped) =
        batch.checked_add(depth).filter(|&skipped| skipped <= x.rank() && batch <= rows.len())
    else {
        refuse!("its indices `{}` do not fit operand 0, `{}`", show(&indices.shape), show(&x.shape));
    };
    let mut shape = rows.to_vec();
    shape.extend(&x.shape[skipped..]);
    Ok(vec![x.like(shape)])
}

/// Operand 0 with some elements replaced: the same shape in new memory.
pub(crate) fn scatter(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    call.input(1)?;
    call.input(2)?;
    Ok(vec![x.like(x.shape.clone())])
}

/// The `k` largest or smallest, and where they were.
pub(crate) fn top_k(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 1..=usize::MAX)?;
    let at = call.axis("axis", -1, x.rank())?;
    let k = if call.opset < 10 { call.int("k", 0)? } else { call.known_int(1)? };
    let mut shape = x.shape.clone();
    match u64::try_from(k) {
        Ok(k) if k <= shape[at] => shape[at] = k,
        _ => refuse!("`{k}` of `{}` elements cannot be chosen", shape[at]),
    }
    Ok(vec![x.like(shape.clone()), Tensor::new(Elem::INT64, shape)])
}

/// Where the largest or smallest element along an axis is.
pub(crate) fn arg(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 1..=usize::MAX)?;
    let at = call.axis("axis", 0, x.rank())?;
    let mut shape = x.shape.clone();
    if call.flag("keepdims", true)? {
        shape[at] = 1;
    } else {
        shape.remove(at);
    }
    Ok(vec![Tensor::new(Elem::INT64, shape)])
}

/// A new axis with a mark at each index.
pub(crate) fn one_hot(call: &Call<'_>) -> Answer {
    let (indices, values) = (call.input(0)?, call.input(2)?);
    let depth = match call.known(1)? {
        Known::Ints(all) => all.first().copied(),
        Known::Floats(all) => all.first().copied().and_then(fold::to_int),
    };
    let Some(depth) = depth.and_then(|depth| u64::try_from(depth).ok()) else {
        refuse!("its depth is negative")
    };
    let at = call.axis("axis", -1, indices.rank() + 1)?;
    let mut shape = indices.shape.clone();
    shape.insert(at, depth);
    Ok(vec![values.like(shape)])
}

/// Coordinates of what is not zero: as many as a run finds.
pub(crate) fn non_zero(call: &Call<'_>) -> Answer {
    match fold::non_zero(call.input(0)?) {
        Some(found) => Ok(vec![found]),
        None => Err(run_time("the number of non-zero elements is known only in a run")),
    }
}

/// Operators whose output length only a run can tell.
pub(crate) fn unbounded(_: &Call<'_>) -> Answer {
    Err(run_time("the length of its output is known only in a run"))
}

/// A box for each region of interest.
pub(crate) fn roi_align(call: &Call<'_>) -> Answer {
    let (x, rois) = (call.ranked(0, 4..=4)?, call.ranked(1, 2..=2)?);
    let (height, width) = (call.count("output_height", 1)?, call.count("output_width", 1)?);
    Ok(vec![x.like(vec![rois.shape[0], x.shape[1], height, width])])
}

/// Sampled at the places of operand 1, whose last dimension counts coordinates.
pub(crate) fn grid_sample(call: &Call<'_>) -> Answer {
    let (x, grid) = (call.ranked(0, 3..=usize::MAX)?, call.ranked(1, 3..=usize::MAX)?);
    if grid.rank() != x.rank() {
        refuse!("shapes `{}` and `{}` differ in rank", show(&x.shape), show(&grid.shape));
    }
    let mut shape = x.shape[..2].to_vec();
    shape.extend(&grid.shape[1..grid.rank() - 1]);
    product(&shape)?;
    Ok(vec![x.like(shape)])
}
