//! What a node tells its operator beside its operands' bytes, as `docs/graph-json.md` writes it: `0=$0:float[2,3];perm=1,0;out0=float[3,2]`.

use std::fmt::Write as _;

use memfit_ir::Digest;

use super::super::call::Call;
use super::super::proto::AttributeProto;
use super::super::tensor::{Known, Tensor};

/// The longest text that stands for itself; a digest stands for longer ones.
const LONGEST: usize = 400;
/// The longest list of numbers that is written out. A node with a longer one equals no other.
const MOST: usize = 64;

/// The text for `call`, whose operands stand among its reads where `reads` says, and whose outputs are these; `None` where not
/// everything is known that decides what it computes.
pub(super) fn of(call: &Call<'_>, reads: &[Option<usize>], outputs: &[Option<Tensor>]) -> Option<String> {
    let mut items = Vec::new();
    for (at, tensor) in call.inputs.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        let value = match reads.get(at).copied().flatten() {
            Some(read) => format!("${read}:{}{}", seen(tensor), all(tensor)),
            // Read before the model runs: what nobody knows may be anything.
            None if tensor.constant && tensor.known.is_none() => return None,
            None => format!("{}{}", seen(tensor), tensor.known.as_ref().map_or(Some(String::new()), listed)?),
        };
        items.push(format!("{at}={value}"));
    }
    let mut named = call.attributes.iter().map(|(name, attribute)| value(call, name, attribute));
    let mut attributes = named.by_ref().collect::<Option<Vec<String>>>()?;
    if call.node.op_type() == "Transpose" && attributes.is_empty() {
        let axes = (0..call.optional(0)?.rank()).rev().map(|axis| axis.to_string());
        attributes.push(format!("perm={}", axes.collect::<Vec<_>>().join(",")));
    }
    attributes.sort_unstable();
    items.extend(attributes);
    items.push(format!("opset={}", call.opset));
    let outs = outputs.iter().enumerate();
    items.extend(outs.filter_map(|(at, out)| Some(format!("out{at}={}", seen(out.as_ref()?)))));
    let text = items.join(";");
    if text.len() <= LONGEST {
        return Some(text);
    }
    Some(Digest::hasher("memfit-attributes/1").text(&text).finish().to_string())
}

/// `float[2,3]`
fn seen(tensor: &Tensor) -> String {
    let dims: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
    format!("{}[{}]", tensor.elem.name(), dims.join(","))
}

/// `=1` where all elements are 1 in every run.
fn all(tensor: &Tensor) -> String {
    let same = match &tensor.known {
        Some(Known::Ints(all)) if all.windows(2).all(|pair| pair[0] == pair[1]) => {
            all.first().map(i64::to_string)
        }
        Some(Known::Floats(all)) if all.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()) => {
            all.first().map(f64::to_string)
        }
        _ => None,
    };
    same.map_or_else(String::new, |number| format!("={number}"))
}

/// `:1,2,3`
fn listed(known: &Known) -> Option<String> {
    let list = match known {
        _ if known.len() > MOST => return None,
        Known::Ints(all) => join(all),
        Known::Floats(all) => join(all),
    };
    Some(format!(":{list}"))
}

fn join<T: ToString>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// `name=value` of one attribute.
fn value(call: &Call<'_>, name: &str, attribute: &AttributeProto) -> Option<String> {
    let lists = [attribute.ints.len(), attribute.floats.len(), attribute.strings.len()];
    let texts = attribute.strings.iter().chain(&attribute.s).map(Vec::len).sum::<usize>();
    if lists.iter().any(|&length| length > MOST) || texts > LONGEST || name.len() > LONGEST {
        return None;
    }
    let value = match attribute.r#type() {
        1 => attribute.f().to_string(),
        2 => attribute.i().to_string(),
        3 => escaped(attribute.s()),
        4 => {
            let tensor = call.tensor(name).ok().flatten()?;
            format!("{}{}", seen(&tensor), listed(tensor.known.as_ref()?)?)
        }
        6 => join(&attribute.floats),
        7 => join(&attribute.ints),
        8 => attribute.strings.iter().map(|text| escaped(text)).collect::<Vec<_>>().join(","),
        _ => return None,
    };
    Some(format!("{}={value}", escaped(name.as_bytes())))
}

/// Letters, digits and a few marks as they are; of everything else the byte's number.
fn escaped(text: &[u8]) -> String {
    let mut out = String::new();
    for &byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b' ' | b'>' | b'/' => {
                out.push(char::from(byte))
            }
            _ => write!(out, "%{byte:02X}").unwrap_or_default(),
        }
    }
    out
}
