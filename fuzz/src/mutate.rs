//! From a good file to a bad one, by small steps that know what files are made of.

use memfit_testkit::Rng;

/// The longest input, in bytes.
pub(crate) const MOST: usize = 100_000;

/// Numbers at which something ends.
const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "255",
    "65535",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-0.0",
    "0.5",
];

/// What means something to a reader.
const TOKENS: [&[u8]; 20] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"null",
    b"true",
    b"\\u0000",
    b"\n",
    b"\x1b[31m",
    b"\xff\xfe",
    b"=",
    b"\x00",
    b"\x80\x02",
    b"(",
    b"0",
    b"\xf0\x9f\x98\x80",
    b"#",
];

/// One of `seeds` after one to eight changes; sometimes none.
pub fn mutant(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[rng.below(seeds.len())].clone();
    for _ in 0..rng.below(9) {
        change(&mut bytes, seeds, rng);
    }
    bytes.truncate(MOST);
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    match rng.below(10) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
        2 => {
            bytes.drain(range(bytes.len(), rng));
        }
        3 => {
            let part = bytes[range(bytes.len(), rng)].to_vec();
            for _ in 0..1 + rng.below(4) {
                insert(bytes, at, &part);
            }
        }
        4 => {
            let other = &seeds[rng.below(seeds.len())];
            let part = other[range(other.len(), rng)].to_vec();
            insert(bytes, at, &part);
        }
        5 => insert(bytes, at, TOKENS[rng.below(TOKENS.len())]),
        6 | 7 => number(bytes, at, rng),
        8 => bytes.truncate(at),
        // The same thing very often, or very deep.
        9 if rng.chance(10) => {
            let part = TOKENS[rng.below(TOKENS.len())].repeat(1 << rng.below(14));
            insert(bytes, at, &part);
        }
        _ => swap(bytes, rng),
    }
}

/// Up to 64 bytes, or now and then up to all.
fn range(length: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.below(length + 1);
    let most = if rng.chance(90) { 64.min(length - start) } else { length - start };
    start..start + rng.below(most + 1)
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    if bytes.len() + part.len() <= MOST {
        let at = at.min(bytes.len());
        bytes.splice(at..at, part.iter().copied());
    }
}

/// Another number for the next one after `at`.
fn number(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|by| at + by) else { return };
    let end =
        bytes[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |by| start + by);
    let other = NUMBERS[rng.below(NUMBERS.len())];
    bytes.splice(start..end, other.bytes());
}

/// Two parts change places.
fn swap(bytes: &mut [u8], rng: &mut Rng) {
    let size = rng.below(bytes.len() / 2 + 1).min(32);
    let (one, other) = (rng.below(bytes.len() + 1), rng.below(bytes.len() + 1));
    let (first, second) = (one.min(other), one.max(other));
    if first + size <= second && second + size <= bytes.len() {
        let (left, right) = bytes.split_at_mut(second);
        left[first..first + size].swap_with_slice(&mut right[..size]);
    }
}
