//! Lists of buffers as other tools write them: the files of `examples/place`, placed as the README there says.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

use std::path::Path;

use memfit::formats::{csv, xla};
use memfit::{Bytes, PlaceGoal, Tools, input, place};

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/place").join(name)).unwrap()
}

fn goal(capacity: Option<u64>, align: u64) -> PlaceGoal {
    PlaceGoal {
        capacity: capacity.map(Bytes),
        align: Bytes(align),
        placer: "best".into(),
        seed: 0,
        effort: 1,
    }
}

#[test]
fn a_buffer_assignment_of_xlas_takes_no_more_than_xla_did() {
    let (dump, ranges) = (file("xla-buffer-assignment.txt"), file("xla-live-range.txt"));
    let (buffers, assigned) = input::buffers(&dump, &input::Options::default(), Some(&ranges)).unwrap();
    assert_eq!((buffers.len(), assigned), (15, Some(Bytes(106_512))));
    let placed = place(&buffers, &goal(None, 16), &Tools::none()).unwrap();
    assert!(placed.peak <= Bytes(106_512), "{:?}", placed.peak);
    // Joined: what one overwrites in place is the other's operand.
    let names: Vec<&str> = buffers.iter().map(|buffer| buffer.id.as_str()).collect();
    assert!(names.contains(&"ynn_fusion wrapped_scatter"), "{names:?}");
    // Both files in one.
    let both = [dump.as_slice(), b"\n", &ranges].concat();
    assert_eq!(input::buffers(&both, &input::Options::default(), None).unwrap(), (buffers, assigned));
    let error = input::buffers(&dump, &input::Options::default(), None).unwrap_err().to_string();
    assert!(error.contains("no live ranges"), "{error}");
    let error = input::buffers(&file("minimalloc.csv"), &input::Options::default(), Some(&ranges))
        .unwrap_err()
        .to_string();
    assert!(error.contains("belongs to a buffer assignment"), "{error}");
}

#[test]
fn minimallocs_older_form_counts_the_last_moment() {
    let (buffers, assigned) =
        input::buffers(&file("minimalloc.csv"), &input::Options::default(), None).unwrap();
    assert_eq!(assigned, None);
    let scratch = buffers.iter().find(|buffer| buffer.id == "scratch1").unwrap();
    assert_eq!((scratch.lower, scratch.upper, scratch.align), (5, 6, Some(Bytes(256))));
    let placed = place(&buffers, &goal(Some(18 << 10), 1), &Tools::none()).unwrap();
    assert_eq!(placed.peak, placed.lower_bound);
    let rows = String::from_utf8(csv::write(&buffers, &placed.offsets)).unwrap();
    assert!(rows.starts_with("id,lower,upper,size,alignment,offset\ninput,0,2,4096,1,"), "{rows}");
}

#[test]
fn damaged_dumps_are_refused_by_line() {
    let live = b"HloLiveRange (max 9):\n  BufferLiveRange:\n    a{}:0-3\n    b{}:3-9\n    b{1}:4-5\n  Live ranges at 1 (peak):\n    x\n";
    let read = |dump: &str, live: &[u8]| xla::read(dump.as_bytes(), Some(live));
    let head = "BufferAssignment:\nallocation 0: size 64, preallocated-temp:\n";
    let shown = |dump: &str| {
        let found = read(dump, live).unwrap();
        let row = |b: &csv::CsvBuffer| format!("{} {}-{} {}", b.id, b.lower, b.upper, b.size.0);
        found.buffers.iter().map(row).collect::<Vec<_>>().join("; ")
    };
    let value = |id: &str, size: u64, offset: u64| {
        format!(" value: <1 {id} @0> (size={size},offset={offset}): f32[2]\n")
    };
    // Side by side; one over the other; unknown ones live throughout; of the same name; empty.
    let [a, b, b1] = [value("a", 32, 0), value("b", 32, 32), value("b{1} (phi)", 16, 48)];
    assert_eq!(shown(&format!("{head}{a}{b}")), "a 0-4 32; b 3-10 32");
    assert_eq!(shown(&format!("{head}{a}{}", value("b", 16, 16))), "a b 0-10 32");
    assert_eq!(shown(&format!("{head}{b}{b1}")), "b b{1} 3-10 32");
    assert_eq!(shown(&format!("{head}{}", value("c", 8, 0))), "c 0-10 8");
    assert_eq!(shown(&format!("{head}{a}{}", value("a", 8, 40))), "a 0-4 32; a #1 0-4 8");
    assert_eq!(shown(&format!("{head}{}", value("a", 0, 0))), "");
    // Temporary values alone, of all allocations one after another.
    let others = "allocation 1: size 8, constant:\n value: <2 k @0> (size=8,offset=0): f32[2]\nallocation 2: size 8, preallocated-temp:\n";
    assert_eq!(shown(&format!("{head}{a}{others}{}", value("b", 8, 0))), "a 0-4 32; b 3-10 8");
    for (dump, live, expected) in [
        (
            format!("{head}{}", value("a", 65, 0)),
            &live[..],
            "line 3: a value reaches over the end of its allocation",
        ),
        (format!("{head}{}", value("a", 1, u64::MAX)), live, "line 3: a value reaches over"),
        (
            format!("{head}{a} value: <2 b @1> (size=8,offset=32): f32[2]\n"),
            live,
            "line 4: temporary values in several",
        ),
        (
            format!("{head} value: <2 b @1> (size=-8,offset=32): f32[2]\n"),
            live,
            "line 3: a value without name",
        ),
        (
            "BufferAssignment:\nallocation 0: large, preallocated-temp:\n".into(),
            live,
            "line 2: an allocation without",
        ),
        (
            format!(
                "allocation 0: size {0}, preallocated-temp:\nallocation 1: size {0}, preallocated-temp:\n",
                u64::MAX
            ),
            live,
            "line 2: more than",
        ),
        (
            format!("allocation 0: size {}, preallocated-temp:\n", 1u64 << 62),
            live,
            "all allocations together",
        ),
        (head.into(), b"  BufferLiveRange:\n    a{}:3-0\n", "line 2 of the live ranges: not a live range"),
        (head.into(), b"  BufferLiveRange:\n    a\n", "line 2 of the live ranges: not a live range"),
        (head.into(), b"\xff", "a dump of XLA's that is not UTF-8"),
    ] {
        let error = read(&dump, live).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Whatever is cut or changed in a dump, it is read or refused.
#[test]
fn no_damage_makes_it_panic() {
    let good = [file("xla-buffer-assignment.txt"), b"\n".to_vec(), file("xla-live-range.txt")].concat();
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut read = 0;
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..=next(4) {
            let (at, length) = (next(bytes.len() - 9), next(9));
            match next(3) {
                0 => bytes[at] = u8::try_from(next(128)).unwrap(),
                1 => drop(bytes.drain(at..at + length)),
                _ => drop(bytes.splice(at..at, b"18446744073709551615"[..length].iter().copied())),
            }
        }
        read += usize::from(input::buffers(&bytes, &input::Options::default(), None).is_ok());
    }
    assert!(read > 100, "{read}");
}
