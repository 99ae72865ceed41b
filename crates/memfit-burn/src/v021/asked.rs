//! What a program's options ask of the engine and of other memory.

use std::time::Instant;

use memfit::engine::{Fault, Settings, Storing, evict};
use memfit::ir::Codec;
use memfit::tiers::{self, Room};
use memfit::{Failure, host_settings};

use crate::settings::{Budget, Disk, Options};

/// The memory for copies that `options` ask for.
pub(super) fn room(options: &Options) -> Room {
    let disk =
        |disk: Disk| tiers::Disk { capacity: disk.budget.bytes(), directory: disk.directory.to_owned() };
    Room { host: options.host.map(Budget::bytes), disk: options.disk.map(disk), link: options.link }
}

/// The settings that `options` ask for.
pub(super) fn settings(options: &Options) -> Result<Settings, Fault> {
    let started = Instant::now();
    let is_named = !options.lossless.is_empty() || !options.lossy.is_empty();
    // One that encodes whatever is said has something to do so with.
    let encodes = !is_named && options.strategy.starts_with("compress:");
    let lossless = if encodes { &[Codec::Zvc.name()] } else { options.lossless };
    let budget = options.budget.bytes();
    let storing = if options.recompute { Storing::WhereCheaper } else { Storing::Always };
    let settings = host_settings(budget, &room(options), [lossless, options.lossy], &|| started.elapsed())
        .map_err(bad)?;
    let parking = settings.tiers.iter().any(Option::is_some);
    let evictor = options.evictor.to_owned();
    let policy = evict::Options { sieve: options.sieve, seed: options.seed, exponents: options.exponents };
    let patience = options.patience.into();
    Ok(Settings { patience, storing, parking, evictor, options: policy, ..settings })
}

/// A failure of memfit's as the engine's fault.
pub(super) fn bad(failure: Failure) -> Fault {
    Fault::BadCall(failure.to_string())
}
