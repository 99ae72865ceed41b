//! Contents of small constants, followed through the operators that exporters compute shapes with.
//!
//! A function here gives `None` where it cannot tell: the operator is then part of the graph like any other.

use super::elem::{Class, Elem};
use super::tensor::{Known, MAX_KNOWN, Tensor, Trouble, product, refuse};

/// Calls `visit` with the coordinates of each element of `shape`, in row-major order.
fn each(shape: &[u64], mut visit: impl FnMut(&[u64])) {
    if shape.contains(&0) {
        return;
    }
    let mut at = vec![0u64; shape.len()];
    loop {
        visit(&at);
        let mut axis = shape.len();
        loop {
            let Some(below) = axis.checked_sub(1) else { return };
            axis = below;
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

/// Position of the element at `coordinates`, which lie inside of `shape`.
fn flat(shape: &[u64], coordinates: impl Iterator<Item = u64>) -> usize {
    let at =
        shape.iter().zip(coordinates).fold(0u64, |at, (dim, x)| at.saturating_mul(*dim).saturating_add(x));
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// A tensor of `shape` whose element at some coordinates is that of `source` at the coordinates `from` gives.
/// Its contents are known if those of `source` are.
pub(super) fn remap(source: &Tensor, shape: Vec<u64>, from: impl Fn(&[u64]) -> Vec<u64>) -> Tensor {
    let (Some(known), Ok(0..=MAX_KNOWN)) = (&source.known, product(&shape)) else {
        return source.like(shape);
    };
    let mut picked = Vec::new();
    each(&shape, |at| picked.push(flat(&source.shape, from(at).into_iter())));
    match known.pick(&picked) {
        Some(known) => Tensor::constant(source.elem, shape, Some(known)),
        None => source.like(shape),
    }
}

/// `source` repeated to `shape`, with which it broadcasts.
pub(super) fn repeat(source: &Tensor, shape: &[u64]) -> Tensor {
    let skipped = shape.len().saturating_sub(source.rank());
    remap(source, shape.to_vec(), |at| {
        at.iter().skip(skipped).zip(&source.shape).map(|(&x, &dim)| if dim == 1 { 0 } else { x }).collect()
    })
}

/// The contents of `operands` broadcast to `shape`.
fn aligned(operands: &[&Tensor], shape: &[u64]) -> Option<Vec<Known>> {
    if product(shape).ok()? > MAX_KNOWN {
        return None;
    }
    operands.iter().map(|operand| repeat(operand, shape).known).collect()
}

/// What the element-wise operator `name` makes of `operands`.
pub(super) fn compute(
    name: &str,
    operands: &[&Tensor],
    elem: Elem,
    shape: &[u64],
) -> Result<Tensor, Trouble> {
    let plain = Tensor::new(elem, shape.to_vec());
    let Some(all) = aligned(operands, shape) else { return Ok(plain) };
    let known = match all.as_slice() {
        [Known::Ints(all)] => one_int(name, all)?,
        [Known::Floats(all)] => one_float(name, all),
        [Known::Ints(a), Known::Ints(b)] => two_ints(name, a, b)?,
        [Known::Floats(a), Known::Floats(b)] => two_floats(name, a, b),
        [Known::Ints(condition), yes, no] if name == "Where" => choose(condition, yes, no),
        _ => None,
    };
    Ok(match known {
        Some(known) => Tensor::constant(elem, shape.to_vec(), Some(known)),
        None => plain,
    })
}

fn one_int(name: &str, all: &[i64]) -> Result<Option<Known>, Trouble> {
    let function: fn(i64) -> Option<i64> = match name {
        "Neg" => i64::checked_neg,
        "Abs" => i64::checked_abs,
        "Sign" => |a| Some(a.signum()),
        "Not" => |a| Some((a == 0).into()),
        _ => return Ok(None),
    };
    let Some(result) = all.iter().map(|&a| function(a)).collect() else {
        refuse!("its result overflows 64 bits")
    };
    Ok(Some(Known::Ints(result)))
}

fn one_float(name: &str, all: &[f64]) -> Option<Known> {
    let function: fn(f64) -> f64 = match name {
        "Neg" => |a| -a,
        "Abs" => f64::abs,
        "Sqrt" => f64::sqrt,
        "Floor" => f64::floor,
        "Ceil" => f64::ceil,
        "Round" => f64::round_ties_even,
        "Exp" => f64::exp,
        "Log" => f64::ln,
        "Reciprocal" => f64::recip,
        _ => return None,
    };
    Some(Known::Floats(all.iter().map(|&a| function(a)).collect()))
}

/// A function of two integers that may overflow.
type Two = fn(i64, i64) -> Option<i64>;

fn two_ints(name: &str, a: &[i64], b: &[i64]) -> Result<Option<Known>, Trouble> {
    let function: Two = match name {
        "Add" | "Sum" => i64::checked_add,
        "Sub" => i64::checked_sub,
        "Mul" => i64::checked_mul,
        "Div" => i64::checked_div,
        "Mod" => |a, b| {
            a.checked_rem_euclid(b).map(|rest| if b < 0 && rest != 0 { rest.saturating_add(b) } else { rest })
        },
        "Pow" => |a, b| u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        "Max" => |a, b| Some(a.max(b)),
        "Min" => |a, b| Some(a.min(b)),
        "And" => |a, b| Some((a != 0 && b != 0).into()),
        "Or" => |a, b| Some((a != 0 || b != 0).into()),
        "Xor" => |a, b| Some(((a != 0) != (b != 0)).into()),
        "Equal" => |a, b| Some((a == b).into()),
        "Less" => |a, b| Some((a < b).into()),
        "LessOrEqual" => |a, b| Some((a <= b).into()),
        "Greater" => |a, b| Some((a > b).into()),
        "GreaterOrEqual" => |a, b| Some((a >= b).into()),
        _ => return Ok(None),
    };
    let all = || a.iter().zip(b);
    let Some(result) = all().map(|(&a, &b)| function(a, b)).collect() else {
        let (a, b) = all().find(|&(&a, &b)| function(a, b).is_none()).unwrap_or((&0, &0));
        refuse!("`{name}` of `{a}` and `{b}` has no 64-bit result");
    };
    Ok(Some(Known::Ints(result)))
}

fn two_floats(name: &str, a: &[f64], b: &[f64]) -> Option<Known> {
    let all = a.iter().zip(b);
    let truth: Option<fn(&f64, &f64) -> bool> = match name {
        "Equal" => Some(f64::eq),
        "Less" => Some(f64::lt),
        "LessOrEqual" => Some(f64::le),
        "Greater" => Some(f64::gt),
        "GreaterOrEqual" => Some(f64::ge),
        _ => None,
    };
    if let Some(truth) = truth {
        return Some(Known::Ints(all.map(|(a, b)| truth(a, b).into()).collect()));
    }
    let function: fn(f64, f64) -> f64 = match name {
        "Add" | "Sum" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Pow" => f64::powf,
        "Max" => f64::max,
        "Min" => f64::min,
        _ => return None,
    };
    Some(Known::Floats(all.map(|(&a, &b)| function(a, b)).collect()))
}

fn choose(condition: &[i64], yes: &Known, no: &Known) -> Option<Known> {
    let pick = |at: usize, chosen: i64| if chosen != 0 { yes.pick(&[at]) } else { no.pick(&[at]) };
    let picked =
        condition.iter().enumerate().map(|(at, &chosen)| pick(at, chosen)).collect::<Option<Vec<_>>>()?;
    join(&picked)
}

/// One after another; `None` if they are of different kinds.
pub(super) fn join(parts: &[Known]) -> Option<Known> {
    let ints = || {
        let part = |part: &Known| if let Known::Ints(part) = part { Some(part.to_vec()) } else { None };
        parts.iter().map(part).collect::<Option<Vec<_>>>()
    };
    let floats = || {
        let part = |part: &Known| if let Known::Floats(part) = part { Some(part.to_vec()) } else { None };
        parts.iter().map(part).collect::<Option<Vec<_>>>()
    };
    ints()
        .map(|all| Known::Ints(all.concat().into()))
        .or_else(|| floats().map(|all| Known::Floats(all.concat().into())))
}

/// Contents of `tensor` as numbers of type `elem`.
pub(super) fn cast(tensor: &Tensor, elem: Elem) -> Tensor {
    let shape = tensor.shape.clone();
    let known = tensor.known.as_ref().and_then(|known| match (known, elem.class()) {
        (Known::Ints(all), Class::Int) => {
            all.iter().map(|&a| narrow(a, elem)).collect::<Option<_>>().map(Known::Ints)
        }
        (Known::Ints(all), Class::Bool) => Some(Known::Ints(all.iter().map(|&a| (a != 0).into()).collect())),
        (Known::Ints(all), Class::Float) => Some(Known::Floats(all.iter().map(|&a| a as f64).collect())),
        (Known::Floats(all), Class::Float) => Some(Known::Floats(all.clone())),
        (Known::Floats(all), Class::Bool) => {
            Some(Known::Ints(all.iter().map(|&a| (a != 0.0).into()).collect()))
        }
        (Known::Floats(all), Class::Int) => {
            let whole = |&a: &f64| to_int(a).and_then(|a| narrow(a, elem));
            all.iter().map(whole).collect::<Option<_>>().map(Known::Ints)
        }
        (_, Class::Text) => None,
    });
    match known {
        Some(known) => Tensor::constant(elem, shape, Some(known)),
        None => Tensor::new(elem, shape),
    }
}

/// `value`, if it needs no more bits than `elem` has.
fn narrow(value: i64, elem: Elem) -> Option<i64> {
    let limit = 1i64.checked_shl(u32::try_from(elem.bits()).ok()?).filter(|_| elem.bits() < 63);
    limit.is_none_or(|limit| (-limit..limit).contains(&value)).then_some(value)
}

/// `value` without its fraction, if 64 bits are enough.
pub(super) fn to_int(value: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "range checked in the same line")]
    (value.abs() < 9.2e18).then_some(value.trunc() as i64)
}

/// Sum, product, largest or smallest element of `tensor` over `axes`, into `shape`, which keeps those as 1.
pub(super) fn reduce(
    name: &str,
    tensor: &Tensor,
    axes: &[usize],
    shape: &[u64],
) -> Result<Option<Known>, Trouble> {
    let Some(Known::Ints(all)) = &tensor.known else { return Ok(None) };
    let (start, function): (i64, Two) = match name {
        "ReduceSum" => (0, i64::checked_add),
        "ReduceProd" => (1, i64::checked_mul),
        "ReduceMax" => (i64::MIN, |a, b| Some(a.max(b))),
        "ReduceMin" => (i64::MAX, |a, b| Some(a.min(b))),
        _ => return Ok(None),
    };
    let Ok(count @ 0..=MAX_KNOWN) = product(shape) else { return Ok(None) };
    let mut sums = vec![Some(start); usize::try_from(count).unwrap_or_default()];
    let mut next = all.iter();
    each(&tensor.shape, |at| {
        let kept = at.iter().enumerate().map(|(axis, &x)| if axes.contains(&axis) { 0 } else { x });
        let sum = sums.get_mut(flat(shape, kept));
        if let (Some(sum), Some(&value)) = (sum, next.next()) {
            *sum = sum.and_then(|sum| function(sum, value));
        }
    });
    let Some(sums) = sums.into_iter().collect() else { refuse!("its result overflows 64 bits") };
    Ok(Some(Known::Ints(sums)))
}

/// Coordinates of the non-zero elements, one column each.
pub(super) fn non_zero(tensor: &Tensor) -> Option<Tensor> {
    let known = tensor.known.as_ref()?;
    let hits: Vec<bool> = match known {
        Known::Ints(all) => all.iter().map(|&a| a != 0).collect(),
        Known::Floats(all) => all.iter().map(|&a| a != 0.0).collect(),
    };
    let mut columns = Vec::new();
    let mut next = hits.iter();
    each(&tensor.shape, |at| {
        if next.next() == Some(&true) {
            columns.push(at.to_vec());
        }
    });
    let rows = (0..tensor.rank()).flat_map(|axis| columns.iter().map(move |at| i64::try_from(at[axis]).ok()));
    let known = rows.collect::<Option<_>>().map(Known::Ints)?;
    Some(Tensor::constant(Elem::INT64, vec![tensor.rank() as u64, columns.len() as u64], Some(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(tensor: &Tensor) -> Vec<i64> {
        match &tensor.known {
            Some(Known::Ints(all)) => all.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn arithmetic_is_checked() {
        let pair = |a, b| (Tensor::vector(vec![a, 7]), Tensor::vector(vec![b]));
        let run = |name, (a, b): (Tensor, Tensor)| compute(name, &[&a, &b], Elem::INT64, &[2]);
        assert_eq!(ints(&run("Mul", pair(3, -2)).unwrap()), [-6, -14]);
        assert_eq!(ints(&run("Mod", pair(-3, 2)).unwrap()), [1, 1]);
        assert_eq!(ints(&run("Mod", pair(3, -2)).unwrap()), [-1, -1]);
        assert_eq!(ints(&run("Equal", pair(7, 7)).unwrap()), [1, 1]);
        assert!(run("Mod", pair(i64::MIN, -1)).is_err() && run("Div", pair(1, 0)).is_err());
        assert_eq!(
            run("Mul", pair(i64::MAX, 2)).unwrap_err().message,
            "`Mul` of `9223372036854775807` and `2` has no 64-bit result"
        );
        assert_eq!(run("Atan2", pair(1, 1)).unwrap().known, None);
    }

    #[test]
    fn coordinates_are_followed() {
        let vector = Tensor::vector((0..6).collect());
        let matrix = vector.viewed(vec![2, 3]);
        let turned = remap(&matrix, vec![3, 2], |at| vec![at[1], at[0]]);
        assert_eq!(ints(&turned), [0, 3, 1, 4, 2, 5]);
        assert_eq!(ints(&repeat(&Tensor::vector(vec![1, 2]), &[2, 2])), [1, 2, 1, 2]);
        let sums = reduce("ReduceSum", &matrix, &[0], &[1, 3]).unwrap();
        assert_eq!(sums, Some(Known::Ints([3, 5, 7].into())));
        assert_eq!(ints(&non_zero(&matrix).unwrap()), [0, 0, 1, 1, 1, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn casts_give_up_rather_than_wrap() {
        let big = Tensor::vector(vec![1 << 40]);
        assert_eq!(cast(&big, Elem::INT32).known, None);
        assert_eq!(cast(&big, Elem::FLOAT).known, Some(Known::Floats([(1u64 << 40) as f64].into())));
        assert_eq!(to_int(1e300), None);
    }
}
