//! Recurrent layers over whole sequences.

use super::super::call::{Answer, Call};
use super::super::tensor::{Tensor, refuse, show};

/// `RNN`, `GRU`, `LSTM`: the output of each step, the last hidden state, and the last cell of an `LSTM`.
pub(crate) fn recurrent(call: &Call<'_>) -> Answer {
    let (x, w, r) = (call.ranked(0, 3..=3)?, call.ranked(1, 3..=3)?, call.ranked(2, 3..=3)?);
    let directions = if call.string("direction", "forward")? == "bidirectional" { 2 } else { 1 };
    let hidden = call.count("hidden_size", r.shape[2])?;
    let gates = gates(call);
    if w.shape[0] != directions || Some(w.shape[1]) != hidden.checked_mul(gates) || r.shape[2] != hidden {
        refuse!("weights `{}` and `{}` do not fit `{hidden}` hidden units", show(&w.shape), show(&r.shape));
    }
    if w.shape[2] != x.shape[2] {
        refuse!("weights `{}` do not fit shape `{}`", show(&w.shape), show(&x.shape));
    }
    let batch_first = call.flag("layout", false)?;
    let (seq, batch) = if batch_first { (x.shape[1], x.shape[0]) } else { (x.shape[0], x.shape[1]) };
    let (all, last) = if batch_first {
        (vec![batch, seq, directions, hidden], vec![batch, directions, hidden])
    } else {
        (vec![seq, directions, batch, hidden], vec![directions, batch, hidden])
    };
    Ok(vec![x.like(all), x.like(last.clone()), x.like(last)])
}

/// `LSTM` with weights of eight bits, which stand the other way round.
pub(crate) fn quantised(call: &Call<'_>) -> Answer {
    let (x, w, r) = (call.ranked(0, 3..=3)?, call.ranked(1, 3..=3)?, call.ranked(2, 3..=3)?);
    let directions = if call.string("direction", "forward")? == "bidirectional" { 2 } else { 1 };
    let hidden = call.count("hidden_size", r.shape[1])?;
    let rows = hidden.checked_mul(4);
    if w.shape[..2] != [directions, x.shape[2]] || Some(w.shape[2]) != rows || r.shape[1] != hidden {
        refuse!("weights `{}` and `{}` do not fit `{hidden}` hidden units", show(&w.shape), show(&r.shape));
    }
    let (seq, batch) = (x.shape[0], x.shape[1]);
    let last = vec![directions, batch, hidden];
    Ok(vec![x.like(vec![seq, directions, batch, hidden]), x.like(last.clone()), x.like(last)])
}

fn gates(call: &Call<'_>) -> u64 {
    match call.node.op_type() {
        "LSTM" => 4,
        "GRU" => 3,
        _ => 1,
    }
}

/// Two matrix products for each step and gate.
pub(crate) fn flops(call: &Call<'_>) -> f64 {
    let (Some(x), Some(w), Some(r)) = (call.optional(0), call.optional(1), call.optional(2)) else {
        return 0.0;
    };
    let size = |tensor: &Tensor| tensor.shape.iter().map(|&dim| dim as f64).product::<f64>();
    let rows = x.shape.iter().take(2).map(|&dim| dim as f64).product::<f64>();
    2.0 * rows * (size(w) + size(r))
}
