//! What a buffer is for, as far as the stack that asked for it tells. A heuristic: it reads names.
//!
//! The innermost frame that says anything decides. So recomputation inside a backward pass counts as activation, and
//! a parameter that an optimizer's step makes as state. Where stacks were recorded but an allocation has none, it's
//! taken for a gradient: autograd's threads, which run the backward pass on a GPU, have no Python stack.

use memfit_formats::snapshot::{Frame, Snapshot};

use super::timeline::{Buffer, Timeline};

/// What a buffer is for. The words are those of graphs' roles, where there's one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotRole {
    /// Weights and what modules register beside them.
    Parameter,
    /// Made in a backward pass: gradients of parameters and of activations.
    Gradient,
    /// State of an optimizer.
    State,
    /// Made in a forward pass.
    Activation,
    /// Batches.
    Input,
    /// Scratch memory: of a library, of an optimizer's step, or given back before anything else happened.
    Workspace,
    /// The stack tells nothing of the kind.
    Other,
    /// No stack was recorded.
    Unknown,
}

impl SnapshotRole {
    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SnapshotRole::Parameter => "parameter",
            SnapshotRole::Gradient => "gradient",
            SnapshotRole::State => "state",
            SnapshotRole::Activation => "activation",
            SnapshotRole::Input => "input",
            SnapshotRole::Workspace => "workspace",
            SnapshotRole::Other => "other",
            SnapshotRole::Unknown => "unknown",
        }
    }
}

/// What one frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    Is(SnapshotRole),
    /// An optimizer's step: state if it stays, scratch memory otherwise.
    Update,
}

/// The role of each buffer.
pub(crate) fn roles(snapshot: &Snapshot, timeline: &Timeline) -> Vec<SnapshotRole> {
    let hints: Vec<Option<Hint>> =
        (0u32..).take(snapshot.stacks.len()).map(|stack| snapshot.frames_of(stack).find_map(hint)).collect();
    let is_recorded = timeline.buffers.iter().any(|buffer| buffer.stack != 0);
    let role = |buffer: &Buffer| {
        let index = usize::try_from(buffer.stack).unwrap_or(usize::MAX);
        match hints.get(index).copied().flatten() {
            Some(Hint::Is(SnapshotRole::Activation | SnapshotRole::Gradient)) if buffer.fleeting => {
                SnapshotRole::Workspace
            }
            Some(Hint::Is(role)) => role,
            Some(Hint::Update) if buffer.until == timeline.until => SnapshotRole::State,
            Some(Hint::Update) => SnapshotRole::Workspace,
            None if buffer.stack != 0 => SnapshotRole::Other,
            None if is_recorded && buffer.from > 0 => SnapshotRole::Gradient,
            None => SnapshotRole::Unknown,
        }
    };
    timeline.buffers.iter().map(role).collect()
}

/// Ends of modules of optimizers, and of what makes and loads weights.
const OPTIMIZERS: [&str; 6] = [
    "/optim/",
    "/optimizers/",
    "/ops/adam/",
    "/ops/lion/",
    "/distributed_fused_adam",
    "/zero_redundancy_optimizer",
];
const LOADERS: [&str; 4] = ["/nn/parameter.py", "/nn/init.py", "/safetensors/", "/serialization.py"];
const BATCHES: [&str; 4] = ["/utils/data/", "dataloader", "data_loader", "/datasets/"];

fn hint(frame: &Frame) -> Option<Hint> {
    use SnapshotRole::{Activation, Gradient, Input, Parameter, State, Workspace};
    let Frame { file, function, .. } = frame;
    let within = |places: &[&str]| places.iter().any(|place| file.contains(place));
    let named = |names: &[&str]| names.contains(&function.as_str());
    if is_native(frame) {
        // Recorded only with C++ stacks: names of kernels and of autograd's nodes.
        let has = |part: &str| function.contains(part);
        return if has("orkspace") || has("CUDABlasHandle") || has("CudnnHandle") {
            Some(Hint::Is(Workspace))
        } else if has("torch::autograd::AccumulateGrad")
            || has("torch::autograd::Engine")
            || has("Backward")
            || has("c10d::Reducer")
        {
            Some(Hint::Is(Gradient))
        } else {
            None
        };
    }
    if within(&OPTIMIZERS) {
        return Some(if named(&["_init_group"]) { Hint::Is(State) } else { Hint::Update });
    }
    if named(&["backward", "_engine_run_backward", "foreach_reduce", "zero_grad"]) {
        return Some(Hint::Is(Gradient));
    }
    let makes_weights = named(&[
        "_apply",
        "load_state_dict",
        "_load_from_state_dict",
        "from_pretrained",
        "reset_parameters",
        "register_buffer",
        "foreach_all_gather",
        "unshard",
    ]);
    if makes_weights || within(&LOADERS) || (within(&["/nn/modules/"]) && named(&["__init__", "convert"])) {
        return Some(Hint::Is(Parameter));
    }
    if within(&BATCHES) || named(&["pin_memory", "default_collate", "collate_fn"]) {
        return Some(Hint::Is(Input));
    }
    let runs_forward = named(&["forward", "_call_impl", "_wrapped_call_impl", "checkpoint"]);
    (runs_forward || within(&["/nn/functional.py", "/nn/modules/"])).then_some(Hint::Is(Activation))
}

/// Whether a frame is of compiled code rather than Python.
fn is_native(frame: &Frame) -> bool {
    frame.function.contains("::")
        || frame.file.is_empty()
        || frame.file == "??"
        || frame.file.ends_with(".cpp")
}

/// The innermost frame that's neither PyTorch's own nor compiled; else the innermost there is.
pub(crate) fn own_frame<'a>(frames: impl Iterator<Item = &'a Frame>) -> Option<&'a Frame> {
    let mut first = None;
    for frame in frames {
        let library = frame.file.starts_with("<frozen")
            || ["/torch/", "/torchinductor_", "/contextlib.py", "/functools.py"]
                .iter()
                .any(|part| frame.file.contains(part));
        if !library && !is_native(frame) {
            return Some(frame);
        }
        first = first.or(Some(frame));
    }
    first
}

/// `models/resnet.py:88 forward`: two components of the path are enough to know a file by.
pub(crate) fn label(frame: Option<&Frame>) -> String {
    let Some(Frame { file, line, function }) = frame else { return "(no stack recorded)".to_owned() };
    let start = file.rmatch_indices(['/', '\\']).nth(1).map_or(0, |(at, _)| at + 1);
    match (file.as_str(), *line) {
        ("" | "??", _) => function.clone(),
        (_, 0) => format!("{} {function}", &file[start..]),
        (_, line) => format!("{}:{line} {function}", &file[start..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, function: &str) -> Frame {
        Frame { file: file.to_owned(), line: 7, function: function.to_owned() }
    }

    #[test]
    fn frames_say_what_they_say() {
        let is = |file: &str, function: &str| match hint(&frame(file, function)) {
            Some(Hint::Is(role)) => role.name(),
            Some(Hint::Update) => "update",
            None => "",
        };
        for (file, function, role) in [
            ("/lib/torch/nn/modules/module.py", "_apply", "parameter"),
            ("/lib/torch/nn/modules/module.py", "_call_impl", "activation"),
            ("/lib/torch/nn/modules/linear.py", "__init__", "parameter"),
            ("/lib/torch/nn/modules/linear.py", "forward", "activation"),
            ("/lib/torch/nn/functional.py", "cross_entropy", "activation"),
            ("/lib/torch/optim/adamw.py", "_init_group", "state"),
            ("/lib/torch/optim/adamw.py", "_multi_tensor_adamw", "update"),
            ("/lib/torch/_tensor.py", "backward", "gradient"),
            ("/lib/torch/utils/data/dataloader.py", "__next__", "input"),
            ("mine/model.py", "forward", "activation"),
            ("mine/train.py", "main", ""),
            ("??", "at::cuda::getCUDABlasLtWorkspace(unsigned long)", "workspace"),
            ("??", "torch::autograd::Engine::evaluate_function(...)", "gradient"),
            ("??", "at::native::empty_cuda(...)", ""),
        ] {
            assert_eq!(is(file, function), role, "{file} {function}");
        }
    }

    #[test]
    fn the_users_own_frame_is_shown() {
        let frames = [
            frame("??", "at::native::empty_cuda"),
            frame("/env/lib/torch/nn/functional.py", "linear"),
            frame("/env/lib/models/gpt2/modeling.py", "forward"),
            frame("train.py", "main"),
        ];
        assert_eq!(label(own_frame(frames.iter())), "gpt2/modeling.py:7 forward");
        assert_eq!(label(own_frame(frames[..2].iter())), "at::native::empty_cuda");
        assert_eq!(label(own_frame(frames[3..].iter())), "train.py:7 main");
        assert_eq!(label(own_frame([].iter())), "(no stack recorded)");
    }
}
