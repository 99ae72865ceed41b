//! What every host keeps, whatever its framework: what belongs to which storage ([`Slots`]), how calls are made again
//! ([`Recipes`]), what ops of a shape need ([`Profiles`]), and what is done about faults ([`Retries`]). A host adds what
//! its framework alone knows: what a recipe is, how a storage's bytes are shown, how an op is run.
//!
//! Architecture invariant: the engine itself uses none of this.

mod profiles;
mod recipes;
mod retry;
mod slots;

pub use profiles::{OpProfile, ProfileId, Profiles};
pub use recipes::{Recipe, Recipes};
pub use retry::{Remedy, Retries, less_scratch, more_scratch};
pub use slots::Slots;

/// Bytes of the places of a map with room for `capacity` pairs.
#[must_use]
pub fn map_bytes<K, V>(capacity: usize) -> usize {
    // A byte of control for each place, and places in a power of two.
    (capacity * 8 / 7).next_power_of_two() * (size_of::<(K, V)>() + 1)
}
