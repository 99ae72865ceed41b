//! What holds of every codec, and what each one promises of its own.

// Under Miri `damage.rs` stands for these, with few words.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use memfit_codec::{CODERS, Coder, Variant, by_name};
use proptest::prelude::*;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_ne_bytes(*word)).collect()
}

/// A decimal digit of noise for each place.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    /// Even in [0, 1).
    fn unit(&mut self) -> f64 {
        self.bits() as f64 / f64::powi(2.0, 56)
    }

    /// Normal, by Box and Muller.
    fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }
}

fn normals(seed: u64, count: usize) -> Vec<f32> {
    let mut draw = Draw(seed * 2 + 1);
    (0..count).map(|_| draw.normal()).collect()
}

fn relu(values: &[f32]) -> Vec<f32> {
    values.iter().map(|value| value.max(0.0)).collect()
}

/// Bits that codecs treat in ways of their own.
const EDGES: [u32; 24] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc0_0001,
    0x7f80_0001,
    0x477f_e000,
    0x477f_f000,
    0x3880_0000,
    0x3300_0000,
    0x43e0_0000,
    0x43e8_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f7f_8000,
    0x0000_8000,
    0x3b00_0000,
];

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(0u32),
        4 => (-3.0f32..3.0).prop_map(f32::to_bits),
        2 => prop::sample::select(EDGES.to_vec()),
        1 => any::<u32>(),
    ]
}

/// Runs of one kind of words, so that some groups are harmless and others are not, and a tail.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        3 => (1..700usize, -2.0f32..2.0).prop_map(|(count, value)| vec![value.to_bits(); count]),
        3 => prop::collection::vec((-1.0f32..1.0).prop_map(|value| value.max(0.0).to_bits()), 1..900),
        3 => prop::collection::vec((-1e3f32..1e3).prop_map(f32::to_bits), 1..900),
        3 => prop::collection::vec(word(), 0..600),
        1 => prop::collection::vec(prop::sample::select(EDGES.to_vec()), 0..300),
        1 => Just(vec![0; 300]),
        1 => prop::collection::vec(1u32..0x0100_0000, 0..300),
    ];
    (prop::collection::vec(run, 0..5), prop::collection::vec(any::<u8>(), 0..4)).prop_map(|(runs, tail)| {
        let mut bytes: Vec<u8> = runs.concat().into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.extend(tail);
        bytes
    })
}

fn cases() -> ProptestConfig {
    let cases = if std::env::var_os("MEMFIT_ALL").is_some() { 5000 } else { 150 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// Sizes are as promised, every variant makes the same bytes of the same bytes, both ways, and what is left at the end is kept.
    #[test]
    fn every_variant_is_the_same(data in data(), key in any::<u64>()) {
        for coder in CODERS {
            let name = coder.name();
            let mut packed = vec![0xa5; coder.bound(data.len()) + 3];
            let size = coder.encode_by(Variant::Scalar, &data, &mut packed, key).unwrap();
            prop_assert!(packed[coder.bound(data.len())..].iter().all(|byte| *byte == 0xa5), "{}", name);
            packed.truncate(size);
            prop_assert!(size <= coder.bound(data.len()) && coder.fixed_size(data.len()).is_none_or(|fixed| fixed == size));
            let mut plain = vec![0x5a; data.len()];
            coder.decode_by(Variant::Scalar, &packed, &mut plain).unwrap();
            prop_assert_eq!(&plain[data.len() / 4 * 4..], &data[data.len() / 4 * 4..], "{}", name);
            if !coder.is_lossy() {
                prop_assert_eq!(&plain, &data, "{}", name);
            }
            for variant in Variant::ALL {
                let mut same = vec![0x33; size];
                prop_assert_eq!(coder.encode_by(variant, &data, &mut same, key), Some(size), "{} {:?}", name, variant);
                prop_assert!(same == packed, "{} {:?}", name, variant);
                let mut back = vec![0xcc; data.len()];
                coder.decode_by(variant, &packed, &mut back).unwrap();
                prop_assert!(back == plain, "{} {:?}", name, variant);
                if let Some(less) = size.checked_sub(1) {
                    prop_assert_eq!(coder.encode_by(variant, &data, &mut same[..less], key), None, "{}", name);
                }
            }
            prop_assert!(coder.encode(&data, size, key).as_ref() == Some(&packed));
            prop_assert!(coder.decode(&packed, data.len()).as_ref() == Ok(&plain));
        }
    }

    /// NaN stays NaN, infinities stay (but in e4m3, which makes them NaN), finite words stay finite (but in half and bf16, which
    /// may round up to infinity).
    #[test]
    fn what_is_not_a_number_stays_so(data in data(), key in any::<u64>()) {
        for coder in CODERS.into_iter().filter(|coder| coder.name() != "binarize") {
            let name = coder.name();
            let packed = coder.encode(&data, usize::MAX, key).unwrap();
            let back = floats(&coder.decode(&packed, data.len()).unwrap());
            for (was, is) in floats(&data).into_iter().zip(back) {
                let is_unsigned = name == "state8-unsigned" && was == f32::NEG_INFINITY;
                if was.is_nan() || was.is_infinite() && (name.ends_with("fp8") || is_unsigned) {
                    prop_assert!(is.is_nan(), "{}: {} became {}", name, was, is);
                } else if was.is_infinite() {
                    prop_assert_eq!(was, is, "{}", name);
                } else if !name.ends_with("f16") {
                    prop_assert!(is.is_finite(), "{}: {} became {}", name, was, is);
                } else {
                    let most = if name.ends_with("bf16") { 3.38e38 } else { 65504.0 };
                    prop_assert!(is.is_finite() || was.abs() > most, "{}: {} became {}", name, was, is);
                }
            }
        }
    }

    /// Masks are exact: bit by bit what is zero, or above it, is so afterwards.
    #[test]
    fn masks_are_exact(data in data(), key in any::<u64>()) {
        for coder in CODERS {
            let name = coder.name();
            let packed = coder.encode(&data, usize::MAX, key).unwrap();
            let back = floats(&coder.decode(&packed, data.len()).unwrap());
            for (was, is) in floats(&data).into_iter().zip(back) {
                if name.ends_with("+mask") {
                    prop_assert_eq!(was > 0.0, is > 0.0, "{}: {} became {}", name, was, is);
                    prop_assert!(is > 0.0 || was.is_nan() || was == f32::NEG_INFINITY || is.to_bits() == 0, "{}: {}", name, is);
                }
                if name.starts_with("zvc+") {
                    prop_assert_eq!(was.to_bits() == 0, is.to_bits() == 0, "{}", name);
                    prop_assert!(was.is_nan() || is.is_nan() || was.is_sign_negative() == is.is_sign_negative());
                    prop_assert_eq!(was == 0.0, is == 0.0, "{}: {} became {}", name, was, is);
                }
                if name == "binarize" {
                    prop_assert_eq!(is.to_bits(), if was > 0.0 { 1.0f32.to_bits() } else { 0 });
                }
            }
        }
    }

    /// Whatever bytes there are, nothing panics, every variant says the same, and what is taken is decoded alike.
    #[test]
    fn damage_does_no_harm(data in data(), key in any::<u64>(), places in prop::collection::vec((any::<prop::sample::Index>(), 0..5u8, any::<u8>()), 1..4)) {
        for coder in CODERS {
            let mut packed = coder.encode(&data, usize::MAX, key).unwrap();
            for (at, what, byte) in &places {
                let at = at.index(packed.len() + 1);
                match what {
                    0 => packed.truncate(at),
                    1 => packed.insert(at, *byte),
                    _ => packed.iter_mut().skip(at).take(usize::from(*what)).for_each(|there| *there ^= byte),
                }
            }
            for size in [data.len(), data.len() + 1, data.len() / 2] {
                let [scalar, others @ ..] = Variant::ALL.map(|variant| {
                    let mut plain = vec![0; size];
                    coder.decode_by(variant, &packed, &mut plain).map(|()| plain)
                });
                for other in others {
                    prop_assert!(other == scalar, "{}", coder.name());
                }
                prop_assert!(coder.decode(&packed, size).is_ok() == scalar.is_ok());
            }
        }
    }
}

#[test]
fn names_are_those_that_plans_have() {
    let names = "zvc csr zvc+bf16 zvc+f16 zvc+fp8 binarize cast-bf16 cast-f16 cast-fp8 int8 int4 int2 int8+mask int4+mask \
                 int2+mask state8 state8-unsigned";
    assert_eq!(CODERS.map(Coder::name).join(" "), names);
    for coder in CODERS {
        assert!(by_name(coder.name()).is_some_and(|found| found.name() == coder.name()));
        assert!(!coder.summary().is_empty());
    }
    assert!(by_name("").is_none() && by_name("zvc ").is_none());
}

/// Bytes of 1,000 words, of which 400 are not zero, and a tail of three bytes, by the formulas of the format.
#[test]
fn sizes_are_those_of_the_formulas() {
    let words: Vec<f32> = (0..1000u16).map(|at| if at % 5 < 2 { f32::from(at) + 0.5 } else { 0.0 }).collect();
    let mut data = bytes(&words);
    data.extend([1, 2, 3]);
    let expected = [
        ("zvc", 1001usize.div_ceil(8) + 400 * 4 + 3),
        ("csr", 4 * 2 + 400 * 5 + 3),
        ("zvc+bf16", 125 + 800 + 3),
        ("zvc+f16", 125 + 800 + 3),
        ("zvc+fp8", 125 + 400 + 2 * 4 + 3),
        ("binarize", 125 + 3),
        ("cast-bf16", 2000 + 3),
        ("cast-f16", 2000 + 3),
        ("cast-fp8", 1000 + 4 * 4 + 3),
        ("int8", 4 * 8 + 1000 + 3),
        ("int4", 4 * 8 + 500 + 3),
        ("int2", 4 * 8 + 250 + 3),
        ("int8+mask", 4 * 8 + 125 + 1000 + 3),
        ("int4+mask", 4 * 8 + 125 + 500 + 3),
        ("int2+mask", 4 * 8 + 125 + 250 + 3),
        ("state8", 4 + 1000 + 3),
        ("state8-unsigned", 4 + 1000 + 3),
    ];
    for (coder, (name, size)) in CODERS.into_iter().zip(expected) {
        assert_eq!(
            (coder.name(), coder.encode(&data, size, 1).map(|packed| packed.len())),
            (name, Some(size))
        );
        assert_eq!(coder.encode(&data, size - 1, 1), None, "{name}");
        assert_eq!(coder.encode(&[], 0, 1), Some(Vec::new()), "{name}");
        assert_eq!(coder.decode(&[], 0), Ok(Vec::new()), "{name}");
        // Sizes that no memory has: no overflow.
        assert!(
            coder.bound(usize::MAX) >= usize::MAX / 64 && coder.decode(&[0; 9], usize::MAX).is_err(),
            "{name}"
        );
    }
}

fn relative_rms(coder: &dyn Coder, values: &[f32], key: u64) -> f64 {
    let data = bytes(values);
    let packed = coder.encode(&data, usize::MAX, key).unwrap();
    let back = floats(&coder.decode(&packed, data.len()).unwrap());
    let square = |sum: f64, value: f64| sum + value * value;
    let errors = values.iter().zip(back).map(|(was, is)| f64::from(is) - f64::from(*was)).fold(0.0, square);
    (errors / values.iter().map(|value| f64::from(*value)).fold(0.0, square)).sqrt()
}

/// Within a fifth of what theory says of normal numbers, and of those a ReLU lets through: rounding to *p* bits has a relative error of
/// about 2^-p / sqrt(3) · 0.72; rounding at random to steps of *s* one of *s* / sqrt(6).
#[test]
fn errors_are_as_large_as_they_must_be() {
    let plain = normals(3, 1 << 16);
    let positive = relu(&plain);
    // The mean range of 256 normal numbers is 5.62, of 128 positive ones 2.8; the root of the mean square 1 and 0.707.
    let step = |levels: f64, range: f64, rms: f64| range / levels / rms / 6f64.sqrt();
    let expected = [
        ("cast-bf16", &plain, 0.00166),
        ("zvc+bf16", &positive, 0.00166),
        ("cast-f16", &plain, 0.000_208),
        ("zvc+f16", &positive, 0.000_208),
        ("cast-fp8", &plain, 0.0265),
        ("zvc+fp8", &positive, 0.0265),
        ("int8", &plain, step(255.0, 5.62, 1.0)),
        ("int4", &plain, step(15.0, 5.62, 1.0)),
        ("int2", &plain, step(3.0, 5.62, 1.0)),
        // Half of the words are zero, and exact.
        ("int8+mask", &positive, step(255.0, 2.8, 1.0)),
        ("int4+mask", &positive, step(15.0, 2.8, 1.0)),
        ("int2+mask", &positive, step(3.0, 2.8, 1.0)),
    ];
    for (name, values, theory) in expected {
        let error = relative_rms(by_name(name).unwrap(), values, 5);
        assert!((0.8..1.2).contains(&(error / theory)), "{name}: {error}, expected {theory}");
    }
    // Adam's: of a relative error of at most a 60th where it counts.
    let squares: Vec<f32> = plain.iter().map(|value| value * value * 1e-6).collect();
    let error = relative_rms(by_name("state8-unsigned").unwrap(), &squares, 0);
    assert!(error < 0.01, "{error}");
    let error = relative_rms(by_name("state8").unwrap(), &plain, 0);
    assert!(error < 0.015, "{error}");
}

/// What is rounded at random is right on average, and the same key rounds the same way.
#[test]
fn rounding_at_random_has_no_bias() {
    let plain = normals(9, 1024);
    for (name, values) in [
        ("int2", plain.clone()),
        ("int4", plain.clone()),
        ("int8", plain.clone()),
        ("int2+mask", relu(&plain)),
        ("int4+mask", relu(&plain)),
    ] {
        let (coder, data) = (by_name(name).unwrap(), bytes(&values));
        let keys = 2000;
        let mut sums = vec![0.0; values.len()];
        for key in 0..keys {
            let packed = coder.encode(&data, usize::MAX, key).unwrap();
            for (sum, value) in sums.iter_mut().zip(floats(&coder.decode(&packed, data.len()).unwrap())) {
                *sum += f64::from(value);
            }
        }
        let once = relative_rms(coder, &values, 1);
        let rms =
            (values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
        let bias = values
            .iter()
            .zip(sums)
            .map(|(value, sum)| (sum / keys as f64 - f64::from(*value)).powi(2))
            .sum::<f64>();
        let bias = (bias / values.len() as f64).sqrt() / rms;
        // As the mean of so many draws has it.
        let theory = once / (keys as f64).sqrt();
        assert!(bias < 1.1 * theory, "{name}: {bias}, expected {theory}");
        assert_eq!(coder.encode(&data, usize::MAX, 7), coder.encode(&data, usize::MAX, 7));
        assert_ne!(coder.encode(&data, usize::MAX, 7), coder.encode(&data, usize::MAX, 8));
    }
}

/// No word is more than a step from where it was, and the least and the most of a group are exact to a rounding.
#[test]
fn quantised_words_stay_within_a_step() {
    for (name, levels) in [
        ("int8", 255.0),
        ("int4", 15.0),
        ("int2", 3.0),
        ("int8+mask", 255.0),
        ("int4+mask", 15.0),
        ("int2+mask", 3.0),
    ] {
        for (scale, offset) in [(1.0, 0.0), (1e-30, 0.0), (1e30, 0.0), (1.0, 1000.0), (3.0, -1e4)] {
            let values: Vec<f32> =
                normals(17, 5000).into_iter().map(|value| value * scale + offset).collect();
            let values = if name.ends_with("mask") { relu(&values) } else { values };
            let (coder, data) = (by_name(name).unwrap(), bytes(&values));
            let back =
                floats(&coder.decode(&coder.encode(&data, usize::MAX, 1).unwrap(), data.len()).unwrap());
            for (was, is) in values.chunks(256).zip(back.chunks(256)) {
                let counted = || was.iter().filter(|value| !name.ends_with("mask") || **value > 0.0);
                let (least, most) = (
                    counted().copied().fold(f32::INFINITY, f32::min),
                    counted().copied().fold(f32::NEG_INFINITY, f32::max),
                );
                if least > most {
                    assert!(is.iter().all(|value| value.to_bits() == 0), "{name}");
                    continue;
                }
                let step = (f64::from(most) - f64::from(least)) / levels;
                let rounding = f64::from(most.abs().max(least.abs())) * 3e-7;
                for (was, is) in was.iter().zip(is) {
                    let error = (f64::from(*was) - f64::from(*is)).abs();
                    assert!(error <= step + rounding, "{name}: {was} became {is}, steps are {step}");
                }
            }
        }
    }
}

/// Casting what was cast changes nothing more.
#[test]
fn casting_twice_is_casting_once() {
    for name in ["zvc+bf16", "zvc+f16", "zvc+fp8", "cast-bf16", "cast-f16", "cast-fp8", "binarize"] {
        let (coder, data) = (by_name(name).unwrap(), bytes(&normals(21, 3001)));
        let once = coder.encode(&data, usize::MAX, 0).unwrap();
        let plain = coder.decode(&once, data.len()).unwrap();
        assert_eq!(coder.encode(&plain, usize::MAX, 0).unwrap(), once, "{name}");
    }
}
