//! Groups that everyday arithmetic does not do for: with NaN, infinities, or a range that an `f32` can't hold, or not well. Rare, so
//! one word at a time, in `f64`.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "codes are within their bits")]

use super::{GROUP, Range, noise_at};
use crate::binarize::is_positive;

/// Codes from the top: NaN, infinity, and that below zero.
const SPECIAL: u8 = 3;

/// With a mask, what is not in it: +0.0, NaN, and infinity below zero.
const BARE: [f32; 3] = [0.0, f32::NAN, f32::NEG_INFINITY];

/// The range of a group, and its codes, of which `top` is the highest.
pub(super) fn encode(
    all: &[u32; GROUP],
    has_mask: bool,
    top: u8,
    noise: &[u32; 128],
    codes: &mut [u8; GROUP],
) -> Range {
    let counts = |bits: u32| f32::from_bits(bits).is_finite() && (!has_mask || is_positive(bits));
    let values = || all.iter().filter(|bits| counts(**bits)).map(|bits| f32::from_bits(*bits));
    let (low, high) = (values().fold(f32::INFINITY, f32::min), values().fold(f32::NEG_INFINITY, f32::max));
    let (low, high) = if low > high { (0.0, 0.0) } else { (low, high) };
    let low = if has_mask && high > 0.0 { low.max(f32::MIN_POSITIVE) } else { low + 0.0 };
    let levels = top - SPECIAL;
    let width = (f64::from(high) - f64::from(low)).max(0.0);
    let range = if levels == 0 {
        Range { scale: 0.0, least: (f64::from(low) + width / 2.0) as f32 }
    } else {
        Range { scale: above(width / f64::from(levels)), least: low }
    };
    for (at, (code, &bits)) in codes.iter_mut().zip(all).enumerate() {
        let value = f32::from_bits(bits);
        *code = if has_mask && !is_positive(bits) {
            u8::from(value.is_nan()) + 2 * u8::from(value == f32::NEG_INFINITY)
        } else if value.is_nan() {
            top
        } else if value.is_infinite() {
            top - if value > 0.0 { 1 } else { 2 }
        } else if range.scale == 0.0 {
            0
        } else {
            let place = (f64::from(value) - f64::from(range.least)) / f64::from(range.scale);
            let draw = f64::from(noise_at(noise, at)) / 65536.0;
            (place + draw).floor().clamp(0.0, f64::from(levels)) as u8
        };
    }
    Range { scale: -range.scale, ..range }
}

/// The least `f32` that is not less.
fn above(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) < value { near.next_up() } else { near }
}

/// What [`encode`] made.
pub(super) fn decode(
    range: Range,
    has_mask: bool,
    top: u8,
    codes: &[u8; GROUP],
    mask: &[u8],
) -> [u32; GROUP] {
    let mut all = [0; GROUP];
    let (scale, least) = (-f64::from(range.scale), f64::from(range.least));
    for (at, (bits, &code)) in all.iter_mut().zip(codes).enumerate() {
        let is_bare = has_mask && mask.get(at / 8).is_none_or(|byte| byte >> (at % 8) & 1 == 0);
        let value = if is_bare {
            BARE.get(usize::from(code)).copied().unwrap_or_default()
        } else {
            match top - code {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                _ => {
                    let most = f64::from(f32::MAX);
                    (f64::from(code) * scale + least).clamp(-most, most) as f32
                }
            }
        };
        *bits = value.to_bits();
    }
    all
}
