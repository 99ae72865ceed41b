//! Shapes as data, and the same data under other shapes.

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::fold;
use super::super::tensor::{Known, MAX_KNOWN, Tensor, Trouble, axis, broadcast, dims, product, refuse, show};

fn signed(value: u64) -> Result<i64, Trouble> {
    i64::try_from(value).map_err(|_| Trouble::new(format!("dimension `{value}` overflows 63 bits")))
}

/// An index that may count from the end and is cut to `[0, len]`.
pub(crate) fn clamped(at: i64, len: u64) -> u64 {
    match u64::try_from(at) {
        Ok(at) => at.min(len),
        Err(_) => len.saturating_sub(at.unsigned_abs()),
    }
}

/// Dimensions `[start, end)` of operand 0.
pub(crate) fn shape(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let rank = x.rank() as u64;
    let (start, end) = (clamped(call.int("start", 0)?, rank), clamped(call.int("end", i64::MAX)?, rank));
    let wanted = x.shape.iter().skip(usize::try_from(start).unwrap_or_default());
    let wanted = wanted.take(usize::try_from(end.saturating_sub(start)).unwrap_or_default());
    Ok(vec![Tensor::vector(wanted.map(|&dim| signed(dim)).collect::<Result<_, _>>()?)])
}

/// Number of elements of operand 0.
pub(crate) fn size(call: &Call<'_>) -> Answer {
    let count = signed(call.input(0)?.count()?)?;
    Ok(vec![Tensor::constant(Elem::INT64, Vec::new(), Some(Known::Ints([count].into())))])
}

/// A value in an attribute.
pub(crate) fn constant(call: &Call<'_>) -> Answer {
    if let Some(tensor) = call.tensor("value")? {
        return Ok(vec![tensor]);
    }
    if let Some(ints) = call.ints("value_ints")? {
        return Ok(vec![Tensor::vector(ints.to_vec())]);
    }
    if let Some(floats) = call.floats("value_floats")? {
        let known = Known::Floats(floats.iter().map(|&value| value.into()).collect());
        return Ok(vec![Tensor::constant(Elem::FLOAT, vec![floats.len() as u64], Some(known))]);
    }
    if call.has("value_int") {
        let known = Known::Ints([call.int("value_int", 0)?].into());
        return Ok(vec![Tensor::constant(Elem::INT64, Vec::new(), Some(known))]);
    }
    if let Some(value) = call.float("value_float")? {
        return Ok(vec![Tensor::constant(
            Elem::FLOAT,
            Vec::new(),
            Some(Known::Floats([value.into()].into())),
        )]);
    }
    refuse!("its value is missing, or text, or sparse")
}

/// One value repeated to the shape in operand 0.
pub(crate) fn constant_of_shape(call: &Call<'_>) -> Answer {
    let shape = dims(call.known_ints(0)?)?;
    let one = match call.tensor("value")? {
        Some(value) if value.count()? != 1 => refuse!("attribute `value` must have one element"),
        Some(value) => value,
        None => Tensor::constant(Elem::FLOAT, vec![1], Some(Known::Floats([0.0].into()))),
    };
    let filled = fold::repeat(&one.viewed(vec![1]), &shape);
    Ok(vec![Tensor { constant: true, ..filled }])
}

/// `start, start + delta, …` below `limit`.
pub(crate) fn range(call: &Call<'_>) -> Answer {
    let elem = call.input(0)?.elem;
    for at in 0..3 {
        if call.known(at)?.len() != 1 {
            refuse!("operand {at} must be one number");
        }
    }
    match (call.known(0)?, call.known(1)?, call.known(2)?) {
        (Known::Ints(start), Known::Ints(limit), Known::Ints(delta)) => {
            let (start, limit, delta) = (i128::from(start[0]), i128::from(limit[0]), i128::from(delta[0]));
            if delta == 0 {
                refuse!("its step is `0`");
            }
            let gap = if delta > 0 { limit - start } else { start - limit };
            let step = delta.unsigned_abs();
            let count = u128::try_from(gap).map_or(0, |gap| gap.div_ceil(step));
            let Ok(count) = u64::try_from(count) else { refuse!("its length `{count}` overflows 64 bits") };
            if count > MAX_KNOWN {
                return Ok(vec![Tensor::constant(elem, vec![count], None)]);
            }
            let value = |at: u64| i64::try_from(start + delta * i128::from(at)).ok();
            let known = (0..count).map(value).collect::<Option<_>>().map(Known::Ints);
            Ok(vec![Tensor::constant(elem, vec![count], known)])
        }
        (Known::Floats(start), Known::Floats(limit), Known::Floats(delta)) => {
            let count = ((limit[0] - start[0]) / delta[0]).ceil().max(0.0);
            let Some(count) = fold::to_int(count).and_then(|count| u64::try_from(count).ok()) else {
                refuse!("its length `{count}` is not a number of elements");
            };
            Ok(vec![Tensor::constant(elem, vec![count], None)])
        }
        _ => refuse!("its operands must have one type"),
    }
}

/// Another shape of as many elements: `0` keeps a dimension, `-1` takes what is left.
pub(crate) fn reshape(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let wanted = if call.opset < 5 && call.inputs.len() < 2 {
        call.ints("shape")?.unwrap_or_default()
    } else {
        call.known_ints(1)?
    };
    let allow_zero = call.flag("allowzero", false)?;
    let count = x.count()?;
    let bad = || {
        let wanted: Vec<String> = wanted.iter().map(i64::to_string).collect();
        Trouble::new(format!("shape `{}` cannot become `{}`", show(&x.shape), wanted.join("×")))
    };
    let mut shape = Vec::with_capacity(wanted.len().min(64));
    let mut free = None;
    for (at, &dim) in wanted.iter().enumerate() {
        shape.push(match dim {
            0 if !allow_zero => *x.shape.get(at).ok_or_else(bad)?,
            -1 if free.is_none() => {
                free = Some(at);
                1
            }
            dim => u64::try_from(dim).map_err(|_| bad())?,
        });
    }
    if let Some(at) = free {
        let others = product(&shape)?;
        if others == 0 {
            // Any size would do; the standard leaves it open and runtimes say 0.
            shape[at] = 0;
        } else if count.is_multiple_of(others) {
            shape[at] = count / others;
        }
    }
    if product(&shape)? != count {
        return Err(bad());
    }
    Ok(vec![x.viewed(shape)])
}

/// Two dimensions: those before `axis`, those from it on.
pub(crate) fn flatten(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let at = call.int("axis", 1)?;
    let at = if i64::try_from(x.rank()) == Ok(at) { x.rank() } else { axis(at, x.rank())? };
    Ok(vec![x.viewed(vec![product(&x.shape[..at])?, product(&x.shape[at..])?])])
}

/// Without the named dimensions of size 1, or without all of them.
pub(crate) fn squeeze(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let mut gone = vec![false; x.rank()];
    match call.axes("axes", 1)? {
        Some(axes) => {
            for &at in axes {
                let at = axis(at, x.rank())?;
                if x.shape[at] != 1 {
                    refuse!("dimension {at} of shape `{}` is not 1", show(&x.shape));
                }
                gone[at] = true;
            }
        }
        None => gone = x.shape.iter().map(|&dim| dim == 1).collect(),
    }
    let kept = x.shape.iter().zip(gone).filter(|(_, gone)| !gone).map(|(&dim, _)| dim);
    Ok(vec![x.viewed(kept.collect())])
}

/// With new dimensions of size 1 at the named places of the result.
pub(crate) fn unsqueeze(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let Some(axes) = call.axes("axes", 1)? else { refuse!("its axes are missing") };
    let rank = x.rank() + axes.len().min(super::super::tensor::MAX_RANK);
    let mut new = vec![false; rank];
    for &at in axes {
        let at = axis(at, rank)?;
        if new[at] {
            refuse!("axis `{at}` is named twice");
        }
        new[at] = true;
    }
    let mut old = x.shape.iter();
    let shape = new.iter().map(|&new| if new { 1 } else { old.next().copied().unwrap_or(1) });
    Ok(vec![x.viewed(shape.collect())])
}

/// Repeated to the shape in operand 1, as far as that is larger.
pub(crate) fn expand(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let shape = broadcast(&x.shape, &dims(call.known_ints(1)?)?)?;
    if shape == x.shape {
        return Ok(vec![x.clone()]);
    }
    Ok(vec![fold::repeat(x, &shape)])
}

/// A matrix with ones on a diagonal.
pub(crate) fn eye_like(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 2..=2)?;
    Ok(vec![Tensor::constant(super::random::dtype(call, x.elem)?, x.shape.clone(), None)])
}
