//! Branches and bodies of ONNX models: each is planned once, as a graph of its own.

use std::cell::RefCell;

use memfit_formats::onnx::{OnnxOptions, read_planned};
use memfit_ir::{Bytes, Graph};

use crate::{Budget, Failure, Goal, Tools, input, plan};

/// Reads an ONNX model. Each branch and body is planned as if it had a device of its own, by the default strategies; the arena
/// that the worst one needs is workspace of its op. Offsets in it are multiples of what all presets of devices ask for.
/// With `wanted` it is that branch or body that is returned: `node/then_branch`, `node/body`.
pub(crate) fn read(bytes: &[u8], options: &OnnxOptions, wanted: Option<&str>) -> Result<Graph, Failure> {
    let device = input::device("H100")?;
    let (names, found) = (RefCell::new(Vec::new()), RefCell::new(None));
    let arena = |body: &Graph| {
        names.borrow_mut().push(body.name().to_owned());
        if wanted == Some(body.name()) {
            *found.borrow_mut() = Some(body.clone());
        }
        let align = device.align;
        if body.op_count() == 0 {
            return Ok(body.value_ids().map(|id| body.value(id).size.round_up(align)).sum::<Bytes>());
        }
        let goal = Goal::new(device.clone(), Budget::Bytes(Bytes(1 << 62)));
        let planned = plan(body, &goal, &Tools::none());
        planned.map(|planned| planned.summary.peak.round_up(align)).map_err(|failure| failure.to_string())
    };
    let graph = read_planned(bytes, options, &arena)?;
    match (wanted, found.into_inner()) {
        (None, _) => Ok(graph),
        (Some(_), Some(body)) => Ok(body),
        (Some(name), None) => {
            let all = names.into_inner();
            let listed: Vec<String> = all.iter().take(8).map(|name| format!("`{name}`")).collect();
            let hint = match listed.as_slice() {
                [] => "it has none".to_owned(),
                _ => format!("it has {}", listed.join(", ")),
            };
            Err(Failure::usage(format!("the model has no branch or body `{name}`"), hint))
        }
    }
}
