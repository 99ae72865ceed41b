//! Snapshots of PyTorch's CUDA memory: what is read, and that no file makes the reader panic.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

use std::path::Path;

use memfit_formats::snapshot::{Action, BlockState, Snapshot, read};
use memfit_formats::unpack;
use memfit_ir::Bytes;

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/snapshots").join(name);
    unpack(&std::fs::read(path).unwrap()).unwrap().into_owned()
}

fn snapshot(name: &str) -> Snapshot {
    read(&file(name)).unwrap()
}

#[test]
fn segments_blocks_and_history_are_read() {
    let found = snapshot("decoder-train.pickle.zst");
    assert_eq!((found.segments.len(), found.history.len(), found.history[0].len()), (56, 1, 2822));
    for segment in &found.segments {
        let mut next = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, next);
            assert!(block.requested <= block.size);
            next += block.size.0;
        }
        assert_eq!(next, segment.address + segment.size.0);
        assert!(!segment.expandable && !segment.private);
        assert_eq!(segment.large, segment.size > Bytes(2 << 20));
    }
    let first = &found.history[0][1];
    assert_eq!((first.action, first.size), (Action::Alloc, Bytes(32000 * 768 * 4)));
    let frames: Vec<_> = found.frames_of(first.stack).map(|frame| frame.function.as_str()).collect();
    assert_eq!(frames, ["convert", "_apply", "to", "main"]);
    assert!(found.stacks[0].is_empty());
    assert!(found.stacks.len() < 30, "equal stacks are there once");

    let expandable = snapshot("decoder-expandable.pickle.zst");
    assert_eq!(expandable.segments.iter().filter(|segment| segment.expandable).count(), 2);
    let oom = snapshot("decoder-oom.pickle.zst");
    let last = oom.history[0].last().unwrap();
    assert_eq!(last.action, Action::OutOfMemory);
    assert!(last.device_free.unwrap() < last.size);
    let bare = snapshot("decoder-no-history.pickle.zst");
    assert!(bare.history[0].is_empty());
    let states = |state| bare.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state == state).count();
    assert_eq!((states(BlockState::Allocated), states(BlockState::Awaiting)), (114, 0));
}

#[test]
fn the_list_of_memory_snapshot_is_read_too() {
    // [{"address": 8, "total_size": 1024, "blocks": [{"size": 1024, "state": "inactive"}]}]
    let bytes = b"\x80\x02]q\0}q\x01(X\x07\0\0\0addressK\x08X\n\0\0\0total_sizeM\0\x04X\x06\0\0\0blocks]\
        }(X\x04\0\0\0sizeM\0\x04X\x05\0\0\0stateX\x08\0\0\0inactiveuaua.";
    let found = read(bytes).unwrap();
    assert_eq!((found.segments.len(), found.segments[0].blocks[0].address), (1, 8));
}

/// A generator of changes, the same ones every time.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap()
}

#[test]
fn no_bytes_make_it_panic() {
    let whole = file("decoder-no-history.pickle.zst");
    for end in (0..whole.len()).step_by(7) {
        assert!(read(&whole[..end]).is_err(), "{end}");
    }
    let (mut state, mut refused) = (1, 0);
    for name in ["decoder-no-history.pickle.zst", "decoder-oom.pickle.zst"] {
        let whole = file(name);
        let (front, rounds) = if whole.len() > 50_000 { (8_000, 300) } else { (whole.len(), 3_000) };
        for _ in 0..rounds {
            let mut changed = whole.clone();
            for _ in 0..1 + next(&mut state) % 4 {
                let at = next(&mut state) % front;
                match next(&mut state) % 3 {
                    0 => changed[at] ^= 1 << (next(&mut state) % 8),
                    1 => changed[at] = u8::try_from(next(&mut state) % 256).unwrap(),
                    _ => drop(changed.remove(at)),
                }
            }
            refused += usize::from(read(&changed).is_err());
        }
    }
    assert!(refused > 1_000, "{refused} of 3,300 were refused");
}
