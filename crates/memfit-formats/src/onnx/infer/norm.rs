//! Normalisations: the result has the shape of operand 0; some also hand out their statistics.

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::tensor::{Tensor, refuse, show};

/// Same type and shape as operand 0, along an axis that must be there.
pub(crate) fn along(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 1..=usize::MAX)?;
    let default = if call.opset < 13 && call.node.op_type() != "LpNormalization" { 1 } else { -1 };
    // Before version 13 the axis may be the rank: everything is one row then.
    if call.opset >= 13 || i64::try_from(x.rank()) != Ok(call.int("axis", default)?) {
        call.axis("axis", default, x.rank())?;
    }
    Ok(vec![x.like(x.shape.clone())])
}

/// Same type and shape as operand 0, which has a batch and channels.
pub(crate) fn channels(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 2..=usize::MAX)?;
    Ok(vec![x.like(x.shape.clone())])
}

/// Normalised by four vectors, one number for each channel. In training also their new statistics.
pub(crate) fn batch(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 1..=usize::MAX)?;
    for at in 1..5 {
        let one = call.ranked(at, 1..=1)?;
        if x.shape.get(1).is_some_and(|channels| one.shape[0] != *channels) {
            refuse!(
                "operand {at}, `{}`, has not one number for each channel of `{}`",
                show(&one.shape),
                show(&x.shape)
            );
        }
    }
    let (mean, var) = (call.input(3)?, call.input(4)?);
    let mut outputs =
        vec![x.like(x.shape.clone()), mean.like(mean.shape.clone()), var.like(var.shape.clone())];
    if call.opset < 14 {
        outputs.extend([mean.like(mean.shape.clone()), var.like(var.shape.clone())]);
    }
    Ok(outputs)
}

/// Normalised over the dimensions from `axis` on; mean and inverse deviation of each row on demand.
pub(crate) fn layer(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 1..=usize::MAX)?;
    call.input(1)?;
    let at = call.axis("axis", -1, x.rank())?;
    let mut rows = x.shape.clone();
    rows[at..].fill(1);
    let stash = i32::try_from(call.int("stash_type", 1)?).ok().and_then(Elem::by_code).unwrap_or(Elem::FLOAT);
    let statistics = Tensor::new(stash, rows);
    let mut outputs = vec![x.like(x.shape.clone()), statistics.clone(), statistics];
    // Without a mean there is only the deviation.
    if call.node.op_type() != "LayerNormalization" {
        outputs.pop();
    }
    Ok(outputs)
}

/// `layer` of a sum of two operands; the sum is the fourth output.
pub(crate) fn skip_layer(call: &Call<'_>) -> Answer {
    let x = call.ranked(0, 2..=3)?;
    call.input(1)?;
    let mut rows = x.shape.clone();
    rows[x.rank() - 1] = 1;
    let statistics = Tensor::new(Elem::FLOAT, rows);
    Ok(vec![x.like(x.shape.clone()), statistics.clone(), statistics, x.like(x.shape.clone())])
}
