//! Attention as one operator, and what stands around it.

use super::super::call::{Answer, Call};
use super::super::tensor::{Tensor, Trouble, refuse, show};

/// The sizes of one attention.
struct Heads {
    batch: u64,
    queries: u64,
    keys: u64,
    heads: u64,
    key_heads: u64,
    /// Of a query or key, and of a value.
    size: (u64, u64),
}

/// `(heads, length, head size)` of operand `at`: in four dimensions, or in three with the heads side by side.
fn parted(call: &Call<'_>, at: usize, heads: &str) -> Result<(u64, u64, u64), Trouble> {
    let x = call.ranked(at, 3..=4)?;
    if let [_, heads, length, size] = x.shape[..] {
        return Ok((heads, length, size));
    }
    match call.count(heads, 0)? {
        0 => refuse!("attribute `{heads}` is missing"),
        heads if x.shape[2].is_multiple_of(heads) => Ok((heads, x.shape[1], x.shape[2] / heads)),
        heads => refuse!("shape `{}` does not divide into `{heads}` heads", show(&x.shape)),
    }
}

fn heads(call: &Call<'_>) -> Result<Heads, Trouble> {
    let (heads, queries, size) = parted(call, 0, "q_num_heads")?;
    let (key_heads, new_keys, key_size) = parted(call, 1, "kv_num_heads")?;
    let (value_heads, new_values, value_size) = parted(call, 2, "kv_num_heads")?;
    let batch = call.input(0)?.shape[0];
    let batches = [call.input(1)?.shape[0], call.input(2)?.shape[0]];
    if size != key_size || new_keys != new_values || key_heads != value_heads || batches != [batch, batch] {
        let shape = |at| call.optional(at).map_or_else(String::new, |x: &Tensor| show(&x.shape));
        refuse!("queries `{}`, keys `{}` and values `{}` do not fit together", shape(0), shape(1), shape(2));
    }
    let past = match call.optional(4) {
        Some(past) if past.rank() != 4 => {
            refuse!("operand 4 has `{}` dimensions, `4` are needed", past.rank())
        }
        Some(past) => past.shape[2],
        None => 0,
    };
    let Some(keys) = new_keys.checked_add(past) else { refuse!("its length overflows 64 bits") };
    Ok(Heads { batch, queries, keys, heads, key_heads, size: (size, value_size) })
}

/// Softmax of `queries · keys`, times values; with the keys and values so far, and the scores on demand.
pub(crate) fn attention(call: &Call<'_>) -> Answer {
    let (q, k, v) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let all = heads(call)?;
    let Heads { batch, queries, keys, heads, key_heads, size } = all;
    let y = if q.rank() == 4 {
        vec![batch, heads, queries, size.1]
    } else {
        let Some(width) = heads.checked_mul(size.1) else { refuse!("its width overflows 64 bits") };
        vec![batch, queries, width]
    };
    Ok(vec![
        q.like(y),
        k.like(vec![batch, key_heads, keys, size.0]),
        v.like(vec![batch, key_heads, keys, size.1]),
        q.like(vec![batch, heads, queries, keys]),
    ])
}

/// Two batched matrix products and a softmax.
pub(crate) fn flops(call: &Call<'_>) -> f64 {
    let Ok(all) = heads(call) else { return 0.0 };
    let scores = [all.batch, all.heads, all.queries, all.keys].iter().map(|&dim| dim as f64).product::<f64>();
    scores * (2.0 * (all.size.0 as f64 + all.size.1 as f64) + 5.0)
}
