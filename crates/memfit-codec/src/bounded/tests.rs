#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

/// splitmix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

fn bits(state: &mut u64) -> u32 {
    u32::try_from(draw(state) >> 32).unwrap()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// The largest error over the bound; panics where it's above one, or where what has to be exact is not.
fn worst(data: &[u8], back: &[u8], bound: f64) -> f64 {
    let mut worst = 0.0f64;
    for (x, y) in floats(data).into_iter().zip(floats(back)) {
        if x.is_nan() || x.is_infinite() || x.is_subnormal() {
            assert_eq!(x.to_bits(), y.to_bits(), "{x} became {y}");
        } else {
            // Both have 24 bits, and they're near each other or one is zero: the difference is exact in f64.
            let error = (f64::from(x) - f64::from(y)).abs();
            assert!(error <= bound, "{x:e} became {y:e} with a bound of {bound:e}");
            worst = worst.max(error / bound);
        }
    }
    worst
}

/// Random bits: all exponents, NaN with payloads, infinities, subnormals; and values about as large as the bound.
fn values(state: &mut u64, bound: f64, count: usize) -> Vec<u8> {
    let kind = draw(state) % 3;
    let near = |state: &mut u64| {
        let steps = (draw(state) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        #[expect(clippy::cast_possible_truncation, reason = "as near as it gets")]
        let value = (steps * bound * (1u64 << (draw(state) % 26)) as f64) as f32;
        value.to_bits()
    };
    let word = |state: &mut u64| match kind {
        0 => bits(state),
        1 => near(state),
        _ if draw(state).is_multiple_of(16) => bits(state),
        _ => near(state),
    };
    (0..count).flat_map(|_| word(state).to_le_bytes()).collect()
}

/// 10⁷ values, or with `MEMFIT_ALL=1` 10⁹.
#[test]
fn no_finite_value_is_further_than_the_bound() {
    let all = std::env::var_os("MEMFIT_ALL").is_some();
    let many = if all { 1_000_000_000 } else { 10_000_000usize };
    let (mut left, longest) = if cfg!(miri) { (400, 100) } else { (many, 4000) };
    let (mut state, mut most) = (1, 0.0f64);
    while left > 0 {
        let count = left.min(1 + usize::try_from(draw(&mut state) % longest).unwrap());
        left -= count;
        // From the smallest to the largest that there are.
        let bound = (1.0 + (draw(&mut state) >> 12) as f64 / (1u64 << 52) as f64)
            * 2.0f64.powi(i32::try_from(draw(&mut state) % 275).unwrap() - 149);
        let data = values(&mut state, bound, count);
        let predictor =
            [Predictor::None, Predictor::Lorenzo][usize::from(draw(&mut state).is_multiple_of(2))];
        let packed = encode(&data, bound, predictor).unwrap();
        assert!(packed.len() <= super::bound(data.len()));
        most = most.max(worst(&data, &decode(&packed, data.len()).unwrap(), bound));
        let base = values(&mut state, bound * 64.0, count);
        let made = quantise(&data, &base, bound).unwrap();
        most = most.max(worst(&data, &dequantise(&made, &base, bound).unwrap(), bound));
    }
    assert!(most > if cfg!(miri) { 0.5 } else { 0.999 }, "the bound is used: {most}");
}

#[test]
fn what_lies_on_the_bound_needs_no_escape() {
    let values: Vec<f32> = (-500..500i16)
        .step_by(if cfg!(miri) { 13 } else { 1 })
        .map(|quarter| f32::from(quarter) * 0.25)
        .collect();
    let data = bytes(&values);
    let made = quantise(&data, &[], 0.25).unwrap();
    assert!(made.at.is_empty());
    assert!((worst(&data, &dequantise(&made, &[], 0.25).unwrap(), 0.25) - 1.0).abs() < 1e-12);
}

/// One below half a step: `f32` alone would say that its error is the bound, and it is a hair more.
#[test]
fn rounding_hides_no_error() {
    for exponent in [-100, -3, 0, 50] {
        let bound = 2.0f32.powi(exponent);
        for x in
            [bound.next_down(), -bound.next_down(), bound.next_up(), 3.0 * bound, (3.0 * bound).next_up()]
        {
            let data = bytes(&[x]);
            let packed = encode(&data, bound.into(), Predictor::None).unwrap();
            worst(&data, &decode(&packed, 4).unwrap(), bound.into());
        }
    }
}

#[test]
fn smooth_data_takes_few_bits_with_the_predictor() {
    let values: Vec<f32> =
        (0..if cfg!(miri) { 300 } else { 10_000i16 }).map(|at| (f32::from(at) * 1e-3).sin()).collect();
    let data = bytes(&values);
    let [none, lorenzo] =
        [Predictor::None, Predictor::Lorenzo].map(|predictor| encode(&data, 1e-4, predictor).unwrap().len());
    assert!(lorenzo * 2 < none && none * 2 < data.len(), "{none}, {lorenzo} of {}", data.len());
}

#[test]
fn every_size_comes_back_and_the_tail_is_kept() {
    let mut state = 5;
    for size in (0..300).step_by(if cfg!(miri) { 53 } else { 1 }) {
        let data: Vec<u8> = values(&mut state, 1.0, 80)[..size].to_vec();
        for predictor in [Predictor::None, Predictor::Lorenzo] {
            let packed = encode(&data, 1.0, predictor).unwrap();
            let back = decode(&packed, size).unwrap();
            assert_eq!(back.len(), size);
            worst(&data, &back, 1.0);
            assert_eq!(data[size / 4 * 4..], back[size / 4 * 4..]);
        }
    }
}

#[test]
fn what_is_no_bound_is_refused() {
    for bound in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-50, 1e39, f64::from(f32::MAX)] {
        assert!(encode(&[], bound, Predictor::None).is_err(), "{bound}");
        assert!(quantise(&[], &[], bound).is_err(), "{bound}");
    }
}

#[test]
fn every_width_is_packed_and_read() {
    let mut state = 3;
    for width in 0..=32 {
        let codes: [u32; BLOCK] =
            std::array::from_fn(|_| if width == 0 { 0 } else { bits(&mut state) >> (32 - width) });
        let mut packed = [0; pack::ROOM];
        let mut planes = [[0; BLOCK]; 4];
        pack::planes_of(&codes, &mut planes);
        pack::write(planes.each_ref(), width, &mut packed);
        assert!(packed[pack::bytes(width) + pack::SLACK..].iter().all(|&byte| byte == 0));
        assert_eq!(pack::read(&packed[..pack::bytes(width)], width), codes, "{width} bits");
    }
    for code in [0, 1, -1, i32::MAX, i32::MIN, 77] {
        assert_eq!(unfolded(folded(code)), code);
    }
}

/// What [`decode`] takes, of any bytes, it also gives: as much as was asked for, and no panic.
#[test]
fn damage_is_refused_or_gives_that_many_bytes() {
    let mut state = 9;
    let seeds: Vec<Vec<u8>> = (0..if cfg!(miri) { 2 } else { 20 })
        .map(|_| encode(&values(&mut state, 1.0, 200), 1.0, Predictor::Lorenzo).unwrap())
        .collect();
    let started = std::time::Instant::now();
    let (mut taken, mut refused) = (0u64, 0u64);
    let (least, longest) = if cfg!(miri) { (40, 0) } else { (1000, 500) };
    while taken + refused < least || started.elapsed().as_millis() < longest {
        let seed = &seeds[usize::try_from(draw(&mut state)).unwrap_or_default() % seeds.len()];
        let mut broken = seed.clone();
        let at = usize::try_from(draw(&mut state) % broken.len() as u64).unwrap();
        match draw(&mut state) % 4 {
            0 => broken[at] ^= 1 << (draw(&mut state) % 8),
            1 => broken.truncate(at),
            2 => broken.insert(at, 0),
            _ => broken[at..].reverse(),
        }
        let size = if draw(&mut state).is_multiple_of(8) { at * 4 } else { 800 };
        match decode(&broken, size) {
            Ok(data) => {
                assert_eq!(data.len(), size);
                taken += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > least / 10 && refused > least / 10, "{taken} taken, {refused} refused");
}
