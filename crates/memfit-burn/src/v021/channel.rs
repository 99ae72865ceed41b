//! Burn's router as the way in: a channel whose client hands every operation to a [`Core`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burn_backend::{DType, DTypeUsageSet, ExecutionError, Shape, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use burn_router::{MultiBackendBridge, RouterTensor, RunnerChannel, RunnerClient, get_client};
use burn_std::future::DynFut;
use memfit::engine::Fault;

use super::backend::Backend;
use super::core::Core;
use super::turn;
use crate::settings::Options;

/// The way from Burn's router to memfit.
pub struct MemfitChannel<B>(PhantomData<fn() -> B>);

impl<B> Clone for MemfitChannel<B> {
    fn clone(&self) -> Self {
        MemfitChannel(PhantomData)
    }
}

/// What every tensor of a device has in its hands.
pub struct MemfitClient<B: Backend> {
    core: Arc<Mutex<Core<B>>>,
    device: B::Device,
}

impl<B: Backend> Clone for MemfitClient<B> {
    fn clone(&self) -> Self {
        MemfitClient { core: Arc::clone(&self.core), device: self.device.clone() }
    }
}

/// The client of `device`.
pub(super) fn client<B: Backend>(device: &B::Device) -> MemfitClient<B> {
    get_client::<MemfitChannel<B>>(device)
}

/// Names of tensors. The router has names of its own, which count from 0.
static NAMES: AtomicU64 = AtomicU64::new(1 << 32);

thread_local! {
    /// How many [`super::attempt`]s this thread is in.
    static ATTEMPTS: Cell<u32> = const { Cell::new(0) };
}

/// Does `work`, and hands over the panic that ends it; one of memfit's is not printed.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    ATTEMPTS.set(ATTEMPTS.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    ATTEMPTS.set(ATTEMPTS.get() - 1);
    outcome
}

impl<B: Backend> MemfitClient<B> {
    /// Does `work` with what belongs to the device.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Core<B>) -> T) -> T {
        work(&mut self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`MemfitClient::with`], where Burn leaves no way to report a fault but a panic.
    fn must<T>(&self, work: impl FnOnce(&mut Core<B>) -> Result<T, Fault>) -> T {
        let outcome = self.with(|core| {
            work(core).map_err(|fault| {
                let message = fault.to_string();
                core.fault = Some(fault);
                core.failed = true;
                message
            })
        });
        match outcome {
            Ok(value) => value,
            // Nobody need read of a panic that is caught; but one that ends the process must say why.
            Err(message) if ATTEMPTS.get() > 0 => resume_unwind(Box::new(format!("memfit: {message}"))),
            Err(message) => panic!("memfit: {message}"),
        }
    }
}

impl<B: Backend> RunnerClient for MemfitClient<B> {
    type Device = B::Device;

    fn register(&self, mut op: OperationIr) -> Vec<RouterTensor<Self>> {
        B::declare(&mut op);
        let made = |output: &TensorIr| {
            RouterTensor::new(output.id, output.shape.clone(), output.dtype, self.clone())
        };
        let outputs = op.outputs().map(made).collect();
        self.register_op(op);
        outputs
    }

    fn register_op(&self, op: OperationIr) {
        let OperationIr::Drop(_) = &op else { return self.must(|core| core.register(op)) };
        let client = self.clone();
        turn::end(move || {
            let ended = client.with(|core| core.register(op));
            // A second panic would end the process.
            if !std::thread::panicking() {
                client.must(|_| ended);
            }
        });
    }

    fn read_tensor_async(&self, tensor: TensorIr) -> DynFut<Result<TensorData, ExecutionError>> {
        self.must(|core| core.read(&tensor))
    }

    fn sync(&self) -> Result<(), ExecutionError> {
        self.with(|core| core.engine.host.runner.inner().sync())
    }

    fn create_empty_handle(&self) -> TensorId {
        TensorId::new(NAMES.fetch_add(1, Ordering::Relaxed))
    }

    fn register_tensor_data(&self, data: TensorData) -> RouterTensor<Self> {
        let id = self.create_empty_handle();
        let shape = data.shape.clone();
        let dtype = self.must(|core| core.put(id, data));
        RouterTensor::new(id, shape, dtype, self.clone())
    }

    fn device(&self) -> Self::Device {
        self.device.clone()
    }

    fn seed(&self, seed: u64) {
        self.with(|core| core.engine.host.draws.seed(seed));
    }

    fn dtype_usage(&self, dtype: DType) -> DTypeUsageSet {
        B::dtype_usage(&self.device, dtype)
    }
}

/// Between devices of one backend tensors go through host memory.
pub struct Bridge<B>(PhantomData<fn() -> B>);

impl<B: Backend> MultiBackendBridge for Bridge<B> {
    type TensorHandle = B::Handle;
    type Device = B::Device;

    fn change_backend_float(tensor: B::Handle, shape: Shape, device: &B::Device) -> B::Handle {
        let tensor = B::float_tensor(burn_ir::TensorHandle { handle: tensor, shape });
        B::float_tensor_handle(B::float_to_device(tensor, device))
    }

    fn change_backend_int(tensor: B::Handle, shape: Shape, device: &B::Device) -> B::Handle {
        let tensor = B::int_tensor(burn_ir::TensorHandle { handle: tensor, shape });
        B::int_tensor_handle(B::int_to_device(tensor, device))
    }

    fn change_backend_bool(tensor: B::Handle, shape: Shape, device: &B::Device) -> B::Handle {
        let tensor = B::bool_tensor(burn_ir::TensorHandle { handle: tensor, shape });
        B::bool_tensor_handle(B::bool_to_device(tensor, device))
    }
}

impl<B: Backend> RunnerChannel for MemfitChannel<B> {
    type Device = B::Device;
    type Bridge = Bridge<B>;
    type Client = MemfitClient<B>;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn name(device: &B::Device) -> String {
        format!("memfit<{}>", B::name(device))
    }

    fn init_client(device: &B::Device) -> MemfitClient<B> {
        let core = Core::new(device.clone(), Options::default());
        // The defaults name what exists.
        let core = core.unwrap_or_else(|fault| panic!("memfit: {fault}"));
        MemfitClient { core: Arc::new(Mutex::new(core)), device: device.clone() }
    }

    fn get_tensor_handle(tensor: &TensorIr, client: &MemfitClient<B>) -> B::Handle {
        client.must(|core| core.handle(tensor))
    }

    fn register_tensor(
        client: &MemfitClient<B>,
        handle: B::Handle,
        shape: Shape,
        dtype: DType,
    ) -> RouterTensor<MemfitClient<B>> {
        client.must(|core| {
            let runner = core.engine.host.runner.inner().clone();
            let tensor = runner.register_tensor(handle, shape.clone(), dtype, client.clone());
            let ir = tensor.into_ir();
            let read = TensorIr { shape: shape.clone(), status: TensorStatus::ReadOnly, ..ir };
            core.put_with(&read, |_| Ok(()))?;
            Ok(RouterTensor::new(read.id, shape, dtype, client.clone()))
        })
    }
}
