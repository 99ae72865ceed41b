//! What a program does by hand with a tensor of its own.
//!
//! Of a tensor of `Autodiff<Memfit<B>>`, `inner()` is the one that memfit holds: `pin(&x.clone().inner())`.

use burn_backend::TensorPrimitive;
use burn_router::RouterTensor;
use burn_tensor::{Bool, Int, Tensor};
use memfit::engine::{Fault, TensorId};
use memfit::ir::Tier;

use super::backend::Backend;
use super::channel::MemfitClient;
use super::core::Core;
use super::decorator::Memfit;
use super::turn::turn;

/// A tensor that memfit holds.
pub trait Held {
    /// The backend around which memfit is.
    type Backend: Backend;

    /// Its primitive, which names it.
    #[doc(hidden)]
    fn primitive(&self) -> RouterTensor<MemfitClient<Self::Backend>>;
}

impl<B: Backend, const D: usize> Held for Tensor<Memfit<B>, D> {
    type Backend = B;

    fn primitive(&self) -> RouterTensor<MemfitClient<B>> {
        match self.clone().into_primitive() {
            TensorPrimitive::Float(tensor) | TensorPrimitive::QFloat(tensor) => tensor,
        }
    }
}

impl<B: Backend, const D: usize> Held for Tensor<Memfit<B>, D, Int> {
    type Backend = B;

    fn primitive(&self) -> RouterTensor<MemfitClient<B>> {
        self.clone().into_primitive()
    }
}

impl<B: Backend, const D: usize> Held for Tensor<Memfit<B>, D, Bool> {
    type Backend = B;

    fn primitive(&self) -> RouterTensor<MemfitClient<B>> {
        self.clone().into_primitive()
    }
}

/// Does `work` with what memfit calls `tensor`.
fn with<H: Held, T>(
    tensor: &H,
    work: impl FnOnce(&mut Core<H::Backend>, TensorId) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let _turn = turn();
    let primitive = tensor.primitive();
    let client = primitive.client.clone();
    // Beside `tensor` itself it is never the last.
    let id = primitive.into_ir().id;
    client.with(|core| {
        let named = core.named(id)?;
        work(core, named)
    })
}

/// Evicts `tensor`: it is computed again where it is read next. False if it can't go: it is pinned, was brought in or written over, or
/// what it was made from has been forgotten; then it stays.
///
/// # Errors
///
/// [`Fault::BadCall`] if memfit does not know it.
pub fn evict<H: Held>(tensor: &H) -> Result<bool, Fault> {
    with(tensor, |core, tensor| core.engine.drop(tensor))
}

/// Brings `tensor` back now, if it is away.
///
/// # Errors
///
/// Any [`Fault`], such as [`Fault::NoRoom`].
pub fn restore<H: Held>(tensor: &H) -> Result<(), Fault> {
    with(tensor, |core, tensor| core.engine.restore(tensor))
}

/// Keeps `tensor` in memory, and brings it back if it is away, until as many calls of [`unpin`].
///
/// # Errors
///
/// Any [`Fault`], such as [`Fault::NoRoom`].
pub fn pin<H: Held>(tensor: &H) -> Result<(), Fault> {
    with(tensor, |core, tensor| core.engine.pin(tensor))
}

/// Takes one [`pin`] back.
///
/// # Errors
///
/// [`Fault::Unknown`] if it is not pinned.
pub fn unpin<H: Held>(tensor: &H) -> Result<(), Fault> {
    with(tensor, |core, tensor| core.engine.unpin(tensor))
}

/// Stores `tensor` in host memory ([`crate::Options::host`]) or on disk ([`crate::Options::disk`]), and gives its bytes back. False if it can't go, or there is no
/// room there. Whoever reads it, or [`restore`], brings it back.
///
/// # Errors
///
/// [`Fault::BadCall`] if memfit does not know it.
pub fn swap_out<H: Held>(tensor: &H, tier: Tier) -> Result<bool, Fault> {
    with(tensor, |core, tensor| core.engine.swap_out(tensor, tier))
}

/// Begins to bring `tensor` back, and does not wait for it; without a copy as [`restore`].
///
/// # Errors
///
/// Any [`Fault`], such as [`Fault::NoRoom`].
pub fn swap_in<H: Held>(tensor: &H) -> Result<(), Fault> {
    with(tensor, |core, tensor| core.engine.swap_in(tensor))
}

/// Whether the bytes of `tensor` are in memory.
///
/// # Errors
///
/// [`Fault::BadCall`] if memfit does not know it.
pub fn is_resident<H: Held>(tensor: &H) -> Result<bool, Fault> {
    with(tensor, |core, tensor| Ok(core.engine.is_resident(tensor)))
}
