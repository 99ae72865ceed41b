//! `Scan`: what its body is given at each step, and what is gathered from it.

use super::super::call::Call;
use super::super::proto::GraphProto;
use super::super::tensor::{Tensor, Trouble, axis, refuse, show};
use super::control::Shape;

/// What a scan goes over.
pub(super) struct Scan {
    pub(super) shape: Shape,
    states: usize,
    pub(super) trips: u64,
    /// The dimension that opset 8 has in front of all.
    batch: Option<u64>,
    /// The axes that outputs gather along.
    axes: Vec<i64>,
}

impl Scan {
    /// What the node that `call` is asks of its body, `graph`.
    pub(super) fn of(call: &Call<'_>, graph: &GraphProto) -> Result<Scan, Trouble> {
        // Opset 8 has a batch in front, and lengths of sequences as operand 0.
        let old = usize::from(call.opset < 9);
        let operands = call.inputs.len().saturating_sub(old);
        let scans = usize::try_from(call.count("num_scan_inputs", 0)?).unwrap_or(usize::MAX);
        let Some(states) = operands.checked_sub(scans).filter(|_| scans > 0) else {
            refuse!("attribute `num_scan_inputs` is `{scans}`, it has `{operands}` operands");
        };
        if graph.input.len() != operands || graph.output.len() < states {
            let (inputs, outputs) = (graph.input.len(), graph.output.len());
            refuse!("its body has `{inputs}` inputs and `{outputs}` outputs, it has `{operands}` operands");
        }
        let in_axes = if old == 1 { None } else { call.ints("scan_input_axes")? };
        let out_axes = if old == 1 { None } else { call.ints("scan_output_axes")? };
        let (mut inputs, mut trips, mut batch) = (Vec::new(), None, None);
        for at in 0..operands {
            let operand = call.ranked(at + old, old..=usize::MAX)?;
            let mut shape = operand.shape.clone();
            if old == 1 {
                batch = Some(shape.remove(0));
            }
            if at < states {
                inputs.push((Tensor::new(operand.elem, shape), false));
                continue;
            }
            let along = in_axes.and_then(|axes| axes.get(at - states)).copied().unwrap_or(0);
            let along = axis(along, shape.len())?;
            let length = shape.remove(along);
            if *trips.get_or_insert(length) != length {
                refuse!("its operands are of `{}` and `{length}` steps", trips.unwrap_or(0));
            }
            inputs.push((Tensor::new(operand.elem, shape), along == 0));
        }
        let axes: Vec<i64> = (states..graph.output.len())
            .map(|at| out_axes.and_then(|axes| axes.get(at - states)).copied().unwrap_or(0))
            .collect();
        let direct = |at: usize| at < states || axes[at - states] == 0;
        let targets = (0..graph.output.len()).map(|at| direct(at).then_some(at)).collect();
        Ok(Scan { shape: Shape { inputs, targets }, states, trips: trips.unwrap_or(0), batch, axes })
    }

    /// Outputs of the node whose body results in `results` at each step.
    pub(super) fn outputs(&self, results: &[Tensor]) -> Result<Vec<Tensor>, Trouble> {
        let mut outputs = Vec::new();
        for (at, result) in results.iter().enumerate() {
            let mut shape = result.shape.clone();
            if at < self.states {
                let before = &self.shape.inputs[at].0;
                if before.shape != shape || before.elem != result.elem {
                    let (before, after) = (show(&before.shape), show(&shape));
                    refuse!(
                        "its state {at} has shape `{before}`, and comes back as `{after}` or of another type"
                    );
                }
            } else {
                let along = axis(self.axes[at - self.states], shape.len() + 1)?;
                shape.insert(along, self.trips);
            }
            if let Some(batch) = self.batch {
                shape.insert(0, batch);
            }
            outputs.push(Tensor::new(result.elem, shape));
        }
        Ok(outputs)
    }
}
