//! Burn's runner, which holds the tensors and runs ops on them; a panic in it is an error, not the end of the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_backend::{DType, Shape, TensorData};
use burn_ir::{BaseOperationIr, OperationIr, PermuteOpIr, TensorHandle, TensorId, TensorIr, TensorStatus};
use burn_router::{Runner, RunnerClient as _};
use memfit::engine::HostError;

use super::backend::Backend;
use super::ops::name;
use super::own;

/// A runner that may have failed.
pub(super) struct Guarded<B: Backend> {
    runner: Runner<B>,
    device: B::Device,
    failed: bool,
}

impl<B: Backend> Guarded<B> {
    pub(super) fn new(device: B::Device) -> Guarded<B> {
        Guarded { runner: Runner::new(device.clone()), device, failed: false }
    }

    /// The runner itself, for what does not fail.
    pub(super) fn inner(&self) -> &Runner<B> {
        &self.runner
    }

    /// Runs `op`.
    pub(super) fn run(&mut self, op: OperationIr) -> Result<(), HostError> {
        let called = name(&op);
        if op.outputs().any(|output| output.dtype.is_uint()) {
            return Err(HostError(format!("`{called}`: Burn's router holds no unsigned integers")));
        }
        let device = self.device.clone();
        self.guard(&called, |runner| match &op {
            // The router's own has no kernel for it.
            OperationIr::BaseInt(BaseOperationIr::Cast(cast)) => {
                let handle = runner.get_tensor_handle(&cast.input);
                let tensor = B::int_tensor(TensorHandle { handle, shape: cast.input.shape.clone() });
                let made = B::int_tensor_handle(B::int_cast(tensor, cast.out.dtype.into()));
                call(runner, made, &cast.out);
            }
            OperationIr::Custom(custom) => {
                let handle = |tensor: &TensorIr| runner.get_tensor_handle(tensor);
                let made = own::run::<B>(custom, &device, &handle).expect("an op that was recorded");
                for (handle, output) in made.into_iter().zip(&custom.outputs) {
                    call(runner, handle, output);
                }
            }
            _ => runner.register_op(op),
        })
    }

    /// A tensor of `data`, called `id`.
    pub(super) fn put(&mut self, id: TensorId, data: TensorData) -> Result<(), HostError> {
        self.guard("data", |runner| runner.register_tensor_data_id(id, data))
    }

    /// What is behind `handle` is called as `tensor` is.
    pub(super) fn call(&mut self, handle: B::Handle, tensor: &TensorIr) -> Result<(), HostError> {
        self.guard("a copy", |runner| call(runner, handle, tensor))
    }

    /// The handle of a tensor, which stays.
    ///
    /// # Panics
    ///
    /// If there is no such tensor.
    pub(super) fn handle(&self, tensor: &TensorIr) -> B::Handle {
        self.runner.get_tensor_handle(tensor)
    }

    /// As [`Guarded::handle`], by the tensor's name.
    pub(super) fn handle_of(&self, id: TensorId) -> B::Handle {
        let shape = Shape::from(Vec::<usize>::new());
        self.handle(&TensorIr { id, shape, status: TensorStatus::ReadOnly, dtype: DType::F32 })
    }

    /// Whether it has failed: its tensors have gone with it.
    pub(super) fn check(&self) -> Result<(), HostError> {
        if self.failed {
            let message = "the backend panicked in an op before: its tensors are lost; `enable` begins anew";
            return Err(HostError(message.to_owned()));
        }
        Ok(())
    }

    /// Lets go of a tensor.
    pub(super) fn forget(&self, id: TensorId) {
        let shape = Shape::from(Vec::<usize>::new());
        let tensor = TensorIr { id, shape, status: TensorStatus::ReadWrite, dtype: DType::F32 };
        self.runner.register_op(OperationIr::Drop(tensor));
    }

    /// A panic leaves the runner locked for good, and whoever drops a tensor then would end the process: another takes its
    /// place, without its tensors.
    fn guard(&mut self, what: &str, work: impl FnOnce(&Runner<B>)) -> Result<(), HostError> {
        self.check()?;
        catch_unwind(AssertUnwindSafe(|| work(&self.runner))).map_err(|panic| {
            self.runner = Runner::new(self.device.clone());
            self.failed = true;
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            HostError(format!("the backend can't run `{what}`: {text}"))
        })
    }
}

/// Has the runner call what is behind `handle` by the name of `tensor`. It names what it is handed itself, so a view of all of
/// it gets the name.
fn call<B: Backend>(runner: &Runner<B>, handle: B::Handle, tensor: &TensorIr) {
    let named = runner.register_tensor(handle, tensor.shape.clone(), tensor.dtype, runner.clone());
    let axes = (0..tensor.shape.num_dims()).collect();
    let permute = BaseOperationIr::Permute(PermuteOpIr { input: named.into_ir(), out: tensor.clone(), axes });
    runner.register_op(match tensor.dtype {
        dtype if dtype.is_float() => OperationIr::BaseFloat(permute),
        DType::Bool(_) => OperationIr::BaseBool(permute),
        _ => OperationIr::BaseInt(permute),
    });
}
