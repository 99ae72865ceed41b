//! Matrix products.

use std::collections::BTreeMap;

use super::super::call::{Answer, Call};
use super::super::elem::Elem;
use super::super::tensor::{Tensor, Trouble, broadcast, refuse, show};

/// Shape of `a · b` as NumPy's `matmul` has it.
pub(crate) fn matmul_shape(a: &[u64], b: &[u64]) -> Result<Vec<u64>, Trouble> {
    let clash = || Trouble::new(format!("shapes `{}` and `{}` do not multiply", show(a), show(b)));
    let (&[.., inner], false) = (a, b.is_empty()) else { return Err(clash()) };
    let (batch_a, rows) = a.split_at(a.len().saturating_sub(2));
    let (batch_b, columns) = b.split_at(b.len().saturating_sub(2));
    if columns[0] != inner {
        return Err(clash());
    }
    let mut shape = broadcast(batch_a, batch_b).map_err(|_| clash())?;
    if let [rows, _] = rows {
        shape.push(*rows);
    }
    if let [_, columns] = columns {
        shape.push(*columns);
    }
    Ok(shape)
}

/// `a · b`, batched.
pub(crate) fn matmul(call: &Call<'_>) -> Answer {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.elem != b.elem {
        refuse!("its operands have types `{}` and `{}`, which must be equal", a.elem.name(), b.elem.name());
    }
    Ok(vec![a.like(matmul_shape(&a.shape, &b.shape)?)])
}

/// `a · b` of 8-bit integers to 32 bits.
pub(crate) fn matmul_integer(call: &Call<'_>) -> Answer {
    let (a, b) = (call.input(0)?, call.input(1)?);
    Ok(vec![Tensor::new(Elem::INT32, matmul_shape(&a.shape, &b.shape)?)])
}

/// `a · b` of quantised matrices; the result has the type of operand 7, its zero point.
pub(crate) fn qlinear_matmul(call: &Call<'_>) -> Answer {
    let (a, b, zero) = (call.input(0)?, call.input(3)?, call.input(7)?);
    Ok(vec![zero.like(matmul_shape(&a.shape, &b.shape)?)])
}

/// `alpha · a · b + beta · c`, each of the matrices transposed or not.
pub(crate) fn gemm(call: &Call<'_>) -> Answer {
    let (a, b) = (call.ranked(0, 2..=2)?, call.ranked(1, 2..=2)?);
    let turned = |x: &Tensor, flag| Ok(if flag { vec![x.shape[1], x.shape[0]] } else { x.shape.clone() });
    let shape =
        matmul_shape(&turned(a, call.flag("transA", false)?)?, &turned(b, call.flag("transB", false)?)?)?;
    if let Some(c) = call.optional(2)
        && call.opset >= 7
        && broadcast(&shape, &c.shape)? != shape
    {
        refuse!("operand 2, `{}`, does not broadcast to `{}`", show(&c.shape), show(&shape));
    }
    Ok(vec![a.like(shape)])
}

/// Multiply-adds of each output element of a matrix product.
pub(crate) fn depth(call: &Call<'_>) -> u64 {
    let at = usize::from(call.node.op_type() == "Gemm" && call.flag("transA", false).unwrap_or_default());
    call.optional(0).and_then(|a| a.shape.iter().rev().nth(at)).copied().unwrap_or(1)
}

/// What an `Einsum` equation says of its operands.
struct Einsum {
    /// Size of each letter.
    sizes: BTreeMap<char, u64>,
    /// Shape of the result.
    shape: Vec<u64>,
    /// Product of the sizes under the ellipsis.
    dots: Vec<u64>,
}

/// Letters of one term; `None` stands for the ellipsis.
fn term(text: &str) -> Result<Vec<Option<char>>, Trouble> {
    let (before, after) =
        text.split_once("...").map_or((text, None), |(before, after)| (before, Some(after)));
    let letters: Vec<Option<char>> = before.chars().map(Some).collect();
    let term = match after {
        Some(after) => [letters, vec![None], after.chars().map(Some).collect()].concat(),
        None => letters,
    };
    match term.iter().flatten().find(|letter| !letter.is_ascii_alphabetic()) {
        Some(other) => refuse!("`{other}` in its equation is not a letter"),
        None => Ok(term),
    }
}

fn parse(call: &Call<'_>) -> Result<Einsum, Trouble> {
    let equation: String =
        call.string("equation", "")?.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (left, right) = equation.split_once("->").map_or((equation.as_str(), None), |(l, r)| (l, Some(r)));
    let terms = left.split(',').map(term).collect::<Result<Vec<_>, _>>()?;
    if terms.len() != call.inputs.len() {
        refuse!("its equation has `{}` terms for `{}` operands", terms.len(), call.inputs.len());
    }
    let mut sizes: BTreeMap<char, u64> = BTreeMap::new();
    let mut times: BTreeMap<char, usize> = BTreeMap::new();
    let mut dots: Vec<u64> = Vec::new();
    for (at, term) in terms.iter().enumerate() {
        let shape = &call.input(at)?.shape;
        let letters = term.iter().flatten().count();
        let Some(hidden) =
            shape.len().checked_sub(letters).filter(|&hidden| hidden == 0 || letters < term.len())
        else {
            refuse!("term {at} of its equation does not fit shape `{}`", show(shape));
        };
        let mut dims = shape.iter();
        for letter in term {
            let Some(letter) = letter else {
                let here: Vec<u64> = dims.by_ref().take(hidden).copied().collect();
                dots = broadcast(&dots, &here)?;
                continue;
            };
            let dim = dims.next().copied().unwrap_or(1);
            *times.entry(*letter).or_default() += 1;
            let size = sizes.entry(*letter).or_insert(dim);
            if *size == 1 {
                *size = dim;
            }
            if dim != *size && dim != 1 {
                refuse!("`{letter}` of its equation is both `{size}` and `{dim}`");
            }
        }
    }
    let result = match right {
        Some(right) => term(right)?,
        None => {
            let once = times.iter().filter(|(_, times)| **times == 1).map(|(&letter, _)| Some(letter));
            std::iter::once(None).chain(once).collect()
        }
    };
    let mut shape = Vec::new();
    for letter in result {
        match letter {
            None => shape.extend(&dots),
            Some(letter) => match sizes.get(&letter) {
                Some(&size) => shape.push(size),
                None => refuse!("`{letter}` stands only in the result of its equation"),
            },
        }
    }
    Ok(Einsum { sizes, shape, dots })
}

/// Sums of products by an equation such as `bij,bjk->bik`.
pub(crate) fn einsum(call: &Call<'_>) -> Answer {
    Ok(vec![call.input(0)?.like(parse(call)?.shape)])
}

/// Operations of an `Einsum` done in one loop over all letters.
pub(crate) fn einsum_flops(call: &Call<'_>) -> f64 {
    let Ok(einsum) = parse(call) else { return 0.0 };
    let all = einsum.sizes.values().chain(&einsum.dots).map(|&size| size as f64).product::<f64>();
    let products = call.inputs.len().saturating_sub(1).max(1);
    2.0 * all * products as f64
}
