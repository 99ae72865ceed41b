//! One output element for each input element.

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::fold;
use super::super::tensor::{Known, Tensor, Trouble, broadcast, refuse};

/// Same type and shape as operand 0.
pub(crate) fn unary(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    Ok(vec![fold::compute(call.node.op_type(), &[x], x.elem, &x.shape)?])
}

/// A truth value for each element of operand 0.
pub(crate) fn test(call: &Call<'_>) -> Answer {
    Ok(vec![Tensor::new(Elem::BOOL, call.input(0)?.shape.clone())])
}

fn two<'c>(call: &'c Call<'_>) -> Result<(&'c Tensor, &'c Tensor, Vec<u64>), Trouble> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.elem != b.elem && !matches!(call.node.op_type(), "Pow" | "BitShift" | "PRelu") {
        refuse!("its operands have types `{}` and `{}`, which must be equal", a.elem.name(), b.elem.name());
    }
    // Before version 7, operand 1 was repeated along an axis given by an attribute.
    let shape = if call.opset < 7 { a.shape.clone() } else { broadcast(&a.shape, &b.shape)? };
    Ok((a, b, shape))
}

/// Two operands of one type, broadcast.
pub(crate) fn binary(call: &Call<'_>) -> Answer {
    let (a, b, shape) = two(call)?;
    if call.opset < 7 && a.shape != b.shape {
        return Ok(vec![a.like(shape)]);
    }
    Ok(vec![fold::compute(call.node.op_type(), &[a, b], a.elem, &shape)?])
}

/// Two operands of one type, broadcast, to truth values.
pub(crate) fn compare(call: &Call<'_>) -> Answer {
    let (a, b, shape) = two(call)?;
    if call.opset < 7 && a.shape != b.shape {
        return Ok(vec![Tensor::new(Elem::BOOL, shape)]);
    }
    Ok(vec![fold::compute(call.node.op_type(), &[a, b], Elem::BOOL, &shape)?])
}

/// A slope for each element or channel: operand 1 is repeated to the shape of operand 0.
pub(crate) fn prelu(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    call.input(1)?;
    Ok(vec![x.like(x.shape.clone())])
}

/// Any number of operands, broadcast.
pub(crate) fn variadic(call: &Call<'_>) -> Answer {
    let first = call.input(0)?;
    let mut shape = first.shape.clone();
    let mut operands = vec![first];
    for at in 1..call.inputs.len() {
        let next = call.input(at)?;
        if next.elem != first.elem {
            refuse!("operand {at} has type `{}`, operand 0 has `{}`", next.elem.name(), first.elem.name());
        }
        shape = broadcast(&shape, &next.shape)?;
        operands.push(next);
    }
    match operands.as_slice() {
        [only] => Ok(vec![(*only).clone()]),
        // Names mean something else to the fold with one operand, and `Mean` is not followed.
        [a, b] => Ok(vec![fold::compute(call.node.op_type(), &[a, b], first.elem, &shape)?]),
        _ => Ok(vec![first.like(shape)]),
    }
}

/// `condition ? a : b`, broadcast.
pub(crate) fn choose(call: &Call<'_>) -> Answer {
    let (condition, yes, no) = (call.input(0)?, call.input(1)?, call.input(2)?);
    if yes.elem != no.elem {
        refuse!(
            "operands 1 and 2 have types `{}` and `{}`, which must be equal",
            yes.elem.name(),
            no.elem.name()
        );
    }
    let shape = broadcast(&broadcast(&condition.shape, &yes.shape)?, &no.shape)?;
    Ok(vec![fold::compute("Where", &[condition, yes, no], yes.elem, &shape)?])
}

fn to(x: &Tensor, elem: Elem) -> Tensor {
    if x.elem == elem { x.clone() } else { fold::cast(x, elem) }
}

/// To the type in an attribute.
pub(crate) fn cast(call: &Call<'_>) -> Answer {
    let code = call.int("to", 0)?;
    let Some(elem) = i32::try_from(code).ok().and_then(Elem::by_code) else {
        refuse!("attribute `to` is `{code}`, which is not an element type");
    };
    Ok(vec![to(call.input(0)?, elem)])
}

/// To the type of operand 1.
pub(crate) fn cast_like(call: &Call<'_>) -> Answer {
    Ok(vec![to(call.input(0)?, call.input(1)?.elem)])
}

/// The same bytes in an element type of as many bits.
pub(crate) fn bit_cast(call: &Call<'_>) -> Answer {
    let code = call.int("to", 0)?;
    let x = call.input(0)?;
    match i32::try_from(code).ok().and_then(Elem::by_code) {
        Some(elem) if elem.bits() == x.elem.bits() => Ok(vec![Tensor { elem, known: None, ..x.clone() }]),
        _ => refuse!("attribute `to` is `{code}`, which is not a type of `{}` bits", x.elem.bits()),
    }
}

/// Nothing happens: the result is operand 0.
pub(crate) fn identity(call: &Call<'_>) -> Answer {
    Ok(vec![call.input(0)?.clone()])
}

/// Nothing in inference, with a mask of ones; random where a flag asks for training.
pub(crate) fn dropout(call: &Call<'_>) -> Answer {
    let x = call.input(0)?;
    let trains = match call.opset {
        ..7 => !call.flag("is_test", false)?,
        7..12 => false,
        12.. => match call.optional(2) {
            None => false,
            // A flag that only a run can tell may be set.
            Some(flag) => flag.known.as_ref().is_none_or(|known| *known != Known::Ints([0].into())),
        },
    };
    let elem = if call.opset < 10 { x.elem } else { Elem::BOOL };
    if trains {
        return Ok(vec![x.like(x.shape.clone()), Tensor::new(elem, x.shape.clone())]);
    }
    Ok(vec![x.clone(), Tensor::constant(elem, x.shape.clone(), None)])
}
