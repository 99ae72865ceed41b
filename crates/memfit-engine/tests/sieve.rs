//! What policies look at when they are told to look at less.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use memfit_engine::evict::{EVICTORS, Options, Sample, Sieve};
use memfit_engine::{Call, Engine, Output, Settings, TensorId, VirtualHost};
use memfit_ir::{Bytes, Effect, Nanos, Role};

/// An engine that holds a tensor of each size, all made of one source.
fn holding(sizes: &[u64], evictor: &str, sieve: Sieve) -> (Engine<'static, VirtualHost>, Vec<TensorId>) {
    seeded(sizes, evictor, sieve, 5)
}

fn seeded(
    sizes: &[u64],
    evictor: &str,
    sieve: Sieve,
    seed: u64,
) -> (Engine<'static, VirtualHost>, Vec<TensorId>) {
    let settings = Settings {
        align: Bytes(1),
        allocator: "ideal".to_owned(),
        evictor: evictor.to_owned(),
        options: Options { sieve, seed, ..Options::default() },
        ..Settings::new(Bytes(8 + sizes.iter().sum::<u64>()))
    };
    let mut engine = Engine::new(VirtualHost::of(&settings), settings).unwrap();
    let source = engine.put(Bytes(8), Role::Input).unwrap();
    let mut all = Vec::new();
    for (at, &size) in sizes.iter().enumerate() {
        let mut made = Vec::new();
        let call = Call {
            kind: "f",
            reads: &[source],
            outputs: &[Output::Fresh(Bytes(size))],
            time: Nanos(10 + at as u64 % 7),
            effect: Effect::Pure,
            ..Call::default()
        };
        engine.apply(&call, &mut made).unwrap();
        all.extend(made);
    }
    (engine, all)
}

/// One choice among n candidates evaluates n scores, with sampling about √n: on average, and never more than twice as many.
#[test]
fn sampling_evaluates_about_the_square_root() {
    for evictor in ["dtr", "eq", "local", "msps", "lru", "largest", "megengine"] {
        for root in [10u64, 20, 40] {
            let sizes = vec![64; usize::try_from(root * root).unwrap()];
            let evaluations = |sample: Sample| {
                let sieve = Sieve { sample, ..Sieve::default() };
                let (mut engine, _) = holding(&sizes, evictor, sieve);
                let mut counts = Vec::new();
                for _ in 0..10 {
                    let before = engine.stats();
                    engine.set_budget(Bytes(engine.settings().budget.0 - 64)).unwrap();
                    assert_eq!(engine.stats().evictions, before.evictions + 1, "{evictor}");
                    counts.push(engine.stats().evaluations - before.evaluations);
                }
                counts
            };
            let all = evaluations(Sample::All);
            assert!(
                all.iter().zip(0..).all(|(&count, gone)| count == root * root - gone),
                "{evictor}: {all:?}"
            );
            let sampled = evaluations(Sample::Sqrt);
            let sum: u64 = sampled.iter().sum();
            assert!((7 * root..=14 * root).contains(&sum), "{evictor}: {sampled:?} of {root} squared");
            assert!(
                sampled.iter().all(|&count| count > root / 2 && count <= 2 * root),
                "{evictor}: {sampled:?}"
            );
        }
    }
}

fn count(most: usize) -> Sample {
    Sample::Count(most.try_into().unwrap())
}

/// A count is exactly that many scores a choice, or as many as there are candidates; and the seed alone says which.
#[test]
fn a_count_is_kept_to() {
    for evictor in ["dtr", "eq", "local", "msps", "lru", "largest", "megengine"] {
        let sizes = vec![64; 90];
        for most in [1, 2, 16, 89, 90, 91, usize::MAX] {
            let run = || {
                let (mut engine, all) =
                    holding(&sizes, evictor, Sieve { sample: count(most), ..Sieve::default() });
                for gone in 0..80 {
                    let before = engine.stats();
                    engine.set_budget(Bytes(engine.settings().budget.0 - 64)).unwrap();
                    assert_eq!(engine.stats().evictions, before.evictions + 1, "{evictor}");
                    let evaluated = engine.stats().evaluations - before.evaluations;
                    assert_eq!(evaluated, most.min(90 - gone) as u64, "{evictor} {most}");
                }
                all.iter().map(|&tensor| engine.is_resident(tensor)).collect::<Vec<_>>()
            };
            assert_eq!(run(), run(), "{evictor} {most}");
        }
    }
}

/// Where all is smaller than what the sieve asks for, no more are looked at than were asked for.
#[test]
fn a_count_is_kept_to_where_all_are_small() {
    let sieve = Sieve { sample: count(5), minimum: 1 << 40, ..Sieve::default() };
    let (mut engine, _) = holding(&[64; 60], "dtr", sieve);
    engine.set_budget(Bytes(engine.settings().budget.0 - 64)).unwrap();
    assert_eq!((engine.stats().evictions, engine.stats().evaluations), (1, 5));
}

/// Each candidate has the same chance to be the one that a count of one looks at.
#[test]
fn a_count_reaches_all_candidates() {
    let mut gone = [0; 12];
    for seed in 0..600 {
        let sieve = Sieve { sample: count(1), ..Sieve::default() };
        let (mut engine, all) = seeded(&[64; 12], "lru", sieve, seed);
        engine.set_budget(Bytes(engine.settings().budget.0 - 64)).unwrap();
        for (gone, &tensor) in gone.iter_mut().zip(&all) {
            *gone += u32::from(!engine.is_resident(tensor));
        }
    }
    assert_eq!(gone.iter().sum::<u32>(), 600);
    assert!(gone.iter().all(|count| (25..=80).contains(count)), "{gone:?}");
}

/// What is below the share of the mean stays as long as anything larger is there, and goes then.
#[test]
fn small_tensors_go_last() {
    // So large that one of them alone keeps the mean of all high enough.
    let sizes: Vec<u64> =
        (0..120).map(|at| if at % 3 == 0 { 1 + at % 4 } else { 1_000_000 + 17_000 * at }).collect();
    for entry in EVICTORS {
        for sample in [Sample::All, Sample::Sqrt, count(1), count(7)] {
            let sieve = Sieve { share_of_mean: 0.01, sample, ..Sieve::default() };
            let (mut engine, tensors) = holding(&sizes, entry.info.name, sieve);
            let gone = |engine: &Engine<'_, VirtualHost>, small: bool| {
                let of_kind = tensors.iter().zip(&sizes).filter(|(_, size)| (**size < 10) == small);
                of_kind.filter(|(tensor, _)| !engine.is_resident(**tensor)).count()
            };
            while gone(&engine, false) < 80 {
                assert_eq!(gone(&engine, true), 0, "{} {sample:?}", entry.info.name);
                engine.set_budget(Bytes(engine.stats().used.0 - 1)).unwrap();
            }
            engine.set_budget(Bytes(8)).unwrap();
            assert_eq!((gone(&engine, true), gone(&engine, false)), (40, 80), "{}", entry.info.name);
        }
    }
}

/// A number of candidates is read as the command line and PyTorch spell it.
#[test]
fn a_sample_is_all_a_root_or_a_number_from_one() {
    let read = |text: &str| text.parse::<Sample>();
    assert_eq!(read("all"), Ok(Sample::All));
    assert_eq!(read("sqrt"), Ok(Sample::Sqrt));
    assert_eq!(read("12"), Ok(Sample::Count(12.try_into().unwrap())));
    for text in ["", "0", "-1", "1.5", "ALL", " 3", "99999999999999999999"] {
        assert_eq!(read(text).unwrap_err().to_string(), "`all`, `sqrt`, or a number from 1", "{text}");
    }
}
