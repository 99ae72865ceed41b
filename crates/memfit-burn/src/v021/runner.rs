//! Burn's runner, which holds the tensors and runs ops on them; a panic in it is an error, not the end of the process.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_backend::{DType, ExecutionError, Shape, TensorData};
use burn_ir::{BaseOperationIr, OperationIr, PermuteOpIr, TensorHandle, TensorId, TensorIr, TensorStatus};
use burn_router::{Runner, RunnerClient as _};
use burn_std::future::DynFut;
use memfit::engine::HostError;
use rustc_hash::FxHashMap;

use super::backend::Backend;
use super::ops::name;
use super::own;

/// The tensors of a device.
struct Tensors<B: Backend> {
    runner: Runner<B>,
    /// The quantised ones, of which the runner knows none.
    quantized: RefCell<FxHashMap<TensorId, B::Handle>>,
}

impl<B: Backend> Tensors<B> {
    fn new(device: B::Device) -> Tensors<B> {
        Tensors { runner: Runner::new(device), quantized: RefCell::default() }
    }

    /// The handle of `tensor`, which stays where it is to be read only.
    fn handle(&self, tensor: &TensorIr) -> B::Handle {
        let mut quantized = self.quantized.borrow_mut();
        let known = match tensor.status {
            _ if quantized.is_empty() => None,
            TensorStatus::ReadWrite => quantized.remove(&tensor.id),
            _ => quantized.get(&tensor.id).cloned(),
        };
        known.unwrap_or_else(|| self.runner.get_tensor_handle(tensor))
    }

    /// Calls what is behind `handle` by the name of `tensor`. The runner names what it is handed itself, so a view of all of it
    /// gets the name.
    fn call(&self, handle: B::Handle, tensor: &TensorIr) {
        if let DType::QFloat(_) = tensor.dtype {
            self.quantized.borrow_mut().insert(tensor.id, handle);
            return;
        }
        let runner = &self.runner;
        let named = runner.register_tensor(handle, tensor.shape.clone(), tensor.dtype, runner.clone());
        let axes = (0..tensor.shape.num_dims()).collect();
        let permute =
            BaseOperationIr::Permute(PermuteOpIr { input: named.into_ir(), out: tensor.clone(), axes });
        runner.register_op(match tensor.dtype {
            dtype if dtype.is_float() => OperationIr::BaseFloat(permute),
            DType::Bool(_) => OperationIr::BaseBool(permute),
            _ => OperationIr::BaseInt(permute),
        });
    }

    fn run(&self, op: OperationIr, device: &B::Device) {
        match &op {
            // The router's own has no kernel for it.
            OperationIr::BaseInt(BaseOperationIr::Cast(cast)) => {
                let handle = self.runner.get_tensor_handle(&cast.input);
                let tensor = B::int_tensor(TensorHandle { handle, shape: cast.input.shape.clone() });
                let made = B::int_tensor_handle(B::int_cast(tensor, cast.out.dtype.into()));
                self.call(made, &cast.out);
            }
            OperationIr::Custom(custom) => {
                let handle = |tensor: &TensorIr| self.handle(tensor);
                let made = own::run::<B>(custom, device, &handle).expect("an op that was recorded");
                for (handle, output) in made.into_iter().zip(&custom.outputs) {
                    self.call(handle, output);
                }
            }
            _ => self.runner.register_op(op),
        }
    }
}

/// A runner that may have failed.
pub(super) struct Guarded<B: Backend> {
    tensors: Tensors<B>,
    device: B::Device,
    failed: bool,
}

impl<B: Backend> Guarded<B> {
    pub(super) fn new(device: B::Device) -> Guarded<B> {
        Guarded { tensors: Tensors::new(device.clone()), device, failed: false }
    }

    /// The runner itself, for what does not fail. Quantised tensors are not there.
    pub(super) fn inner(&self) -> &Runner<B> {
        &self.tensors.runner
    }

    /// Runs `op`.
    pub(super) fn run(&mut self, op: OperationIr) -> Result<(), HostError> {
        let called = name(&op);
        if op.outputs().any(|output| output.dtype.is_uint()) {
            return Err(HostError(format!("`{called}`: Burn's router holds no unsigned integers")));
        }
        let device = self.device.clone();
        self.guard(&called, |tensors| tensors.run(op, &device))
    }

    /// A tensor of `data`, called `id`.
    pub(super) fn put(&mut self, id: TensorId, data: TensorData) -> Result<(), HostError> {
        let device = self.device.clone();
        self.guard("data", |tensors| {
            if let DType::QFloat(_) = data.dtype {
                let handle = B::quantized_tensor_handle(B::q_from_data(data, &device));
                tensors.quantized.borrow_mut().insert(id, handle);
            } else {
                tensors.runner.register_tensor_data_id(id, data);
            }
        })
    }

    /// What is behind `handle` is called as `tensor` is.
    pub(super) fn call(&mut self, handle: B::Handle, tensor: &TensorIr) -> Result<(), HostError> {
        self.guard("a copy", |tensors| tensors.call(handle, tensor))
    }

    /// The data of `tensor`.
    pub(super) fn read(&self, tensor: TensorIr) -> DynFut<Result<TensorData, ExecutionError>> {
        if let DType::QFloat(_) = tensor.dtype {
            let handle = self.handle(&tensor);
            return Box::pin(B::q_into_data(B::quantized_tensor(TensorHandle {
                handle,
                shape: tensor.shape,
            })));
        }
        self.tensors.runner.read_tensor_async(tensor)
    }

    /// The handle of a tensor, which stays.
    ///
    /// # Panics
    ///
    /// If there is no such tensor.
    pub(super) fn handle(&self, tensor: &TensorIr) -> B::Handle {
        self.tensors.handle(tensor)
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
        if self.tensors.quantized.borrow_mut().remove(&id).is_some() {
            return;
        }
        let shape = Shape::from(Vec::<usize>::new());
        let tensor = TensorIr { id, shape, status: TensorStatus::ReadWrite, dtype: DType::F32 };
        self.tensors.runner.register_op(OperationIr::Drop(tensor));
    }

    /// A panic leaves the runner locked for good, and whoever drops a tensor then would end the process: another takes its
    /// place, without its tensors.
    fn guard(&mut self, what: &str, work: impl FnOnce(&Tensors<B>)) -> Result<(), HostError> {
        self.check()?;
        catch_unwind(AssertUnwindSafe(|| work(&self.tensors))).map_err(|panic| {
            self.tensors = Tensors::new(self.device.clone());
            self.failed = true;
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            HostError(format!("the backend can't run `{what}`: {text}"))
        })
    }
}
