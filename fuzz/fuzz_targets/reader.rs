//! One reader under libFuzzer: `MEMFIT_READER=onnx cargo +nightly fuzz run --features libfuzzer reader`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use memfit_fuzz::{READERS, Reader, mutant};
use memfit_testkit::Rng;

/// That of `MEMFIT_READER`, with its good files.
static READER: LazyLock<(&Reader, Vec<Vec<u8>>)> = LazyLock::new(|| {
    let name = std::env::var("MEMFIT_READER").unwrap_or_else(|_| "graph".to_owned());
    let Some(reader) = READERS.iter().find(|reader| reader.name == name) else {
        let names: Vec<&str> = READERS.iter().map(|reader| reader.name).collect();
        panic!("there is no reader `{name}`; there are {}", names.join(", "));
    };
    (reader, (reader.seeds)())
});

fuzz_target!(|bytes: &[u8]| {
    (READER.0.read)(bytes);
});

// libFuzzer's own changes, changes that know what files are made of, and now and then a good file to begin from anew.
fuzz_mutator!(|bytes: &mut [u8], size: usize, most: usize, seed: u32| {
    let mut rng = Rng::new(seed.into());
    if rng.chance(50) {
        return fuzzer_mutate(bytes, size, most);
    }
    let made = match rng.chance(10) {
        true => mutant(&READER.1, &mut rng),
        false => mutant(&[bytes[..size].to_vec()], &mut rng),
    };
    let size = made.len().min(most);
    bytes[..size].copy_from_slice(&made[..size]);
    size
});
