//! From a plan to the offsets that TensorFlow Lite Micro takes for its tensors.

use memfit_ir::{Bytes, OpId, Step};

use super::Model;
use crate::FormatError;
use crate::plan_json::PlanFile;

/// What the runtime aligns buffers to, and counts on.
pub const ALIGN: Bytes = Bytes(16);

/// What the runtime is to decide.
const RUNTIME: i32 = -1;

/// What to do about a plan that no offline allocation can say.
const HINT: &str = "plan it with `--order given --no-recompute --no-offload`";

/// For each tensor of the model its offset in the arena, or -1 where the runtime decides: weights, variables, which have an
/// arena of their own, what has no bytes, and all of subgraphs but the first. What a plan holds for variables is taken out of the arena. The plan must be
/// one that the verifier has accepted for `model`.
///
/// # Errors
///
/// If the plan does not run every op once, in the order of the file, in one bank and on one lane; if it moves or encodes values;
/// if an offset is no multiple of [`ALIGN`] or does not fit 31 bits; if another subgraph needs the arena, since the
/// metadata can't tell their tensors apart.
pub fn offsets(file: &PlanFile, model: &Model) -> Result<Vec<i32>, FormatError> {
    let refuse = |message: String| FormatError::new("", message);
    let Some(beside) = model.beside else {
        let message = "several subgraphs need the arena, and offline offsets can't tell their tensors apart";
        return Err(refuse(message.into()));
    };
    let program = &file.plan.program;
    let mut next = 0;
    for step in &program.steps {
        match step {
            Step::Compute(compute) if compute.op == OpId::at(next) => next += 1,
            Step::Free(_) => {}
            Step::Compute(_) => {
                return Err(
                    refuse("the plan runs ops in another order than the file, or again".into()).hint(HINT)
                );
            }
            _ => return Err(refuse("the plan moves, encodes or waits for values".into()).hint(HINT)),
        }
    }
    if file.header.banks.len() != 1 || file.header.lanes > 1 || !program.parked.is_empty() {
        return Err(
            refuse("the plan has several banks or lanes, or keeps values elsewhere".into()).hint(HINT)
        );
    }
    let mut of = vec![None; model.graph.value_count()];
    let mut variables: Vec<(Bytes, Bytes)> = Vec::new();
    for (buffer, place) in program.buffers.iter().zip(&file.plan.layout.places) {
        let Some(value) = buffer.content.value().filter(|value| value.index() < of.len()) else { continue };
        of[value.index()] = Some(place.offset);
        if model.graph.value(value).role.is_persistent() {
            variables.push((place.offset, buffer.size.round_up(ALIGN)));
        }
    }
    // Later versions of a variable lie where the first does.
    variables.sort_unstable();
    variables.dedup_by_key(|&mut (offset, _)| offset);
    let offset = |value: &Option<memfit_ir::ValueId>| {
        let Some((value, place)) = value.and_then(|value| Some((value, of.get(value.index()).copied()??)))
        else {
            return Ok(RUNTIME);
        };
        let value = model.graph.value(value);
        if value.role.is_persistent() || value.size == Bytes::ZERO {
            return Ok(RUNTIME);
        }
        // Nothing lies where a variable does, so what is above all moves down by as much.
        let beneath: Bytes = variables.iter().filter(|(at, _)| *at < place).map(|(_, size)| *size).sum();
        let place = place.saturating_sub(beneath);
        if place.round_up(ALIGN) != place {
            let message = format!("offset `{}` is no multiple of {}", place.0, ALIGN.0);
            return Err(refuse(message).hint("plan it for a device whose `align` is a multiple of 16"));
        }
        i32::try_from(place.0).map_err(|_| refuse(format!("offset `{}` does not fit 31 bits", place.0)))
    };
    let mut all = model.tensors.iter().map(offset).collect::<Result<Vec<i32>, FormatError>>()?;
    all.resize(all.len() + beside, RUNTIME);
    Ok(all)
}
