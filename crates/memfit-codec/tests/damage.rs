//! Spoilt bytes for every decoder of plans, of few words each: as many as Miri gets through, which sees reads out of bounds.

#![allow(clippy::unwrap_used, reason = "a test")]

use memfit_codec::{CODERS, Damaged, Variant};

/// splitmix64.
fn draw(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    usize::try_from((bits ^ bits >> 31) >> 8).unwrap()
}

/// Words of a value: zeros, numbers, what is no number, and a tail of up to three bytes.
fn value(state: &mut u64, size: usize) -> Vec<u8> {
    let words = (0..=size / 4).flat_map(|_| {
        let number = i16::try_from(draw(state) % 2000).unwrap() - 1000;
        match draw(state) % 9 {
            0..4 => [0; 4],
            4 => f32::INFINITY.to_ne_bytes(),
            5 => f32::NAN.to_ne_bytes(),
            _ => (f32::from(number) / 64.0).to_ne_bytes(),
        }
    });
    let mut bytes: Vec<u8> = words.collect();
    bytes.truncate(size);
    bytes
}

/// Whether both are refused, or the same words. Miri draws the bits of a NaN that arithmetic makes.
fn same(one: &Result<Vec<u8>, Damaged>, other: &Result<Vec<u8>, Damaged>) -> bool {
    let (Ok(first), Ok(second)) = (one, other) else { return one == other };
    let number = |word: &[u8]| word.try_into().map_or(0.0, f32::from_ne_bytes);
    let mut words = first.chunks(4).zip(second.chunks(4));
    first.len() == second.len()
        && words.all(|(a, b)| a == b || cfg!(miri) && number(a).is_nan() && number(b).is_nan())
}

#[test]
fn spoilt_bytes_do_no_harm() {
    // The last two are more than a group of what quantises by groups.
    let sizes: &[usize] = if cfg!(miri) { &[0, 41] } else { &[0, 1, 4, 41, 128, 1027, 2600] };
    let rounds = if cfg!(miri) { 6 } else { 400 };
    let (mut state, mut taken, mut refused) = (1, 0, 0);
    for coder in CODERS {
        for &size in sizes {
            let plain = value(&mut state, size);
            let packed = coder.encode(&plain, usize::MAX, 7).unwrap();
            let back = coder.decode(&packed, size).unwrap();
            assert!(coder.is_lossy() || back == plain, "{}", coder.name());
            for _ in 0..rounds {
                let mut broken = packed.clone();
                let at = draw(&mut state) % (broken.len() + 1);
                match draw(&mut state) % 4 {
                    0 => broken.truncate(at),
                    1 => broken.insert(at, 0xa5),
                    2 => broken[at..].reverse(),
                    _ => broken.iter_mut().skip(at).take(4).for_each(|byte| *byte ^= 0x41),
                }
                let asked = [size, size + 1, size / 2, size * 2][draw(&mut state) % 4];
                let [scalar, others @ ..] = Variant::ALL.map(|variant| {
                    let mut plain = vec![0; asked];
                    coder.decode_by(variant, &broken, &mut plain).map(|()| plain)
                });
                for other in others.into_iter().chain([coder.decode(&broken, asked)]) {
                    assert!(same(&other, &scalar), "{}", coder.name());
                }
                *(if scalar.is_ok() { &mut taken } else { &mut refused }) += 1;
            }
        }
    }
    assert!(taken > 10 && refused > 10, "{taken} taken, {refused} refused");
}
