//! Training with [Burn](https://burn.dev) within a hard budget of bytes.
//!
//! `Memfit<B>` is a Burn backend around another one. Two lines of a program change: the backend's type, and
//! [`enable`]. Every tensor then lives within the budget: what doesn't fit is dropped, and computed again when it is needed,
//! to the same bits.
//!
//! ```
//! use burn::backend::Autodiff;
//! use burn::tensor::{Distribution, Tensor};
//! use burn_flex::{Flex, FlexDevice};
//! use memfit_burn::{Budget, Memfit, enable, report};
//!
//! type B = Autodiff<Memfit<Flex>>; // was: Autodiff<Flex>
//!
//! let device = FlexDevice;
//! enable(&device, Budget::of(600 << 10))?;
//!
//! // Eight layers whose activations take 64 KiB each, all needed by the backward pass.
//! let x = Tensor::<B, 2>::random([128, 128], Distribution::Default, &device).require_grad();
//! let mut y = x.clone();
//! for _ in 0..8 {
//!     y = y.tanh().sin();
//! }
//! let gradient = x.grad(&y.sum().backward()).unwrap();
//! assert_eq!(gradient.dims(), [128, 128]);
//! assert!(report(&device).engine.peak.0 <= 600 << 10 && report(&device).engine.recomputes > 0);
//! # Ok::<(), memfit_burn::Fault>(())
//! ```
//!
//! Ops of several threads are run one after the other. Burn's tensor operations return no results, so a budget that is too small ends in a panic; [`attempt`]
//! turns it into the [`Fault`] that says who holds what.
//!
//! Architecture invariants: everything that knows a version of Burn is in one module, `v021`; what decides is the
//! engine, which knows no Burn; nothing here is decided by a hash map's order; the one `unsafe` is the allocator that is counted, in `heap`.

#![deny(unsafe_code)]

pub mod heap;
mod meter;
mod settings;
mod v021;

pub use memfit::engine::Fault;
pub use memfit::engine::evict::{Sample, Sieve};
pub use memfit::ir::Tier;
pub use meter::Meter;
pub use settings::{Budget, Disk, Mode, Options};
pub use v021::*;

#[cfg(feature = "zoo")]
pub mod zoo;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
