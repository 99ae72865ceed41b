//! Readers of recorded steps and foreign graphs take any bytes without a panic.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

use memfit_formats::{checkmate_json, g10_json, simrd};

const LOG: &str = include_str!("../../../corpus/recorded/every-instruction.log");
const CHECKMATE: &str = include_str!("../../../corpus/recorded/checkmate.json");
const G10: &str = include_str!("../../../corpus/recorded/g10.json");

/// Changes, drops and repeats bytes and whole lines of `text`, many times over.
fn hammer(text: &str, read: impl Fn(&[u8]) -> bool) {
    assert!(read(text.as_bytes()), "the original is good");
    let mut state = 1u64;
    let mut below = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % count.max(1)
    };
    let mut read_again = 0;
    for _ in 0..4000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=below(3) {
            if bytes.is_empty() {
                break;
            }
            let (at, other) = (below(bytes.len()), below(bytes.len()));
            match below(5) {
                0 => bytes[at] = b"0123456789\"{}[],:-x"[below(19)],
                1 => drop(bytes.remove(at)),
                2 => bytes.swap(at, other),
                3 => bytes.truncate(at.max(1)),
                _ => {
                    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
                    let (from, to) = (below(lines.len()), below(lines.len()));
                    lines.insert(to, lines[from]);
                    bytes = lines.concat();
                }
            }
        }
        read_again += u32::from(read(&bytes));
    }
    println!("{read_again} of 4000 were read");
}

#[test]
fn spoiled_files_are_read_or_refused() {
    hammer(LOG, |bytes| simrd::read(bytes).is_ok());
    hammer(CHECKMATE, |bytes| checkmate_json::read(bytes).is_ok());
    hammer(G10, |bytes| g10_json::read(bytes).is_ok());
}
