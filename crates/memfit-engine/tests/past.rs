//! What has no future leaves: cuts, updates, and what a tensor's last reference means for its bytes.
#![allow(clippy::unwrap_used, reason = "a test")]

use memfit_engine::{Call, Engine, Fate, Output, Settings, TensorId, VirtualHost};
use memfit_ir::{Bytes, Nanos, Role};

const SIZE: Bytes = Bytes(1024);

fn engine() -> Engine<'static, VirtualHost> {
    Engine::new(VirtualHost::default(), Settings::new(Bytes(1 << 20))).unwrap()
}

fn op(engine: &mut Engine<'_, VirtualHost>, reads: &[TensorId], output: Output) -> TensorId {
    let mut made = Vec::new();
    let outputs = [output];
    let call = Call { kind: "op", reads, outputs: &outputs, time: Nanos(10), ..Call::default() };
    engine.apply(&call, &mut made).unwrap();
    made[0]
}

#[test]
fn a_cut_takes_records_in_any_order() {
    let mut engine = engine();
    let x = engine.put(SIZE, Role::Input).unwrap();
    let first = op(&mut engine, &[x], Output::Fresh(SIZE));
    let a = op(&mut engine, &[x], Output::Fresh(SIZE));
    engine.del(first).unwrap();
    // Its record has the place of the first, before that of what it reads.
    let b = op(&mut engine, &[a], Output::Fresh(SIZE));
    engine.del(a).unwrap();
    engine.cut().unwrap();
    assert_eq!(engine.held(), [x, b]);
    assert_eq!(engine.stats().used, Bytes(2 * SIZE.0));
    assert!(!engine.is_evictable(b));
    engine.del(x).unwrap();
    engine.del(b).unwrap();
    assert_eq!(engine.stats().used, Bytes::ZERO);
}

#[test]
fn what_an_update_leaves_needs_its_batch_no_more() {
    let mut engine = engine();
    let mut parameter = engine.put(SIZE, Role::Parameter).unwrap();
    for _ in 0..5 {
        let batch = engine.put(SIZE, Role::Input).unwrap();
        let gradient = op(&mut engine, &[parameter, batch], Output::Fresh(SIZE));
        assert_eq!(engine.fate(gradient), Ok(Fate::Repeatable));
        assert_eq!(engine.fate(parameter), Ok(Fate::Needed));
        let updated = op(&mut engine, &[parameter, gradient], Output::InPlace(0));
        engine.del(parameter).unwrap();
        parameter = updated;
        engine.del(batch).unwrap();
        assert_eq!(engine.fate(batch).ok(), None);
        // The gradient is still held, and can't be computed again: so the batch is gone.
        assert_eq!(engine.stats().used, Bytes(2 * SIZE.0));
        engine.del(gradient).unwrap();
    }
    assert_eq!(engine.fate(parameter), Ok(Fate::Free));
    engine.share(parameter).unwrap();
    assert_eq!(engine.fate(parameter), Ok(Fate::Held));
    assert_eq!(engine.stats().used, SIZE);
}

#[test]
fn a_view_that_is_away_keeps_its_maker_when_its_bytes_stay() {
    let mut engine = engine();
    let x = engine.put(SIZE, Role::Input).unwrap();
    let made = op(&mut engine, &[x], Output::Fresh(SIZE));
    let view = op(&mut engine, &[made], Output::View(0));
    assert!(engine.drop(made).unwrap());
    // Back without the view, and never to go again.
    engine.keep_resident(made).unwrap();
    assert!(engine.is_resident(made) && !engine.is_resident(view));
    engine.get(view).unwrap();
    assert!(engine.is_resident(view));
    engine.del(view).unwrap();
    engine.del(made).unwrap();
    engine.del(x).unwrap();
    assert_eq!(engine.stats().used, Bytes::ZERO);
}

/// One turn of a loop that carries state: noise from a small source, a passing result, the next state.
fn turn(engine: &mut Engine<'_, VirtualHost>, state: TensorId) -> TensorId {
    let source = engine.put(Bytes(300), Role::Constant).unwrap();
    let noise = op(engine, &[source], Output::Fresh(SIZE));
    engine.del(source).unwrap();
    let mixed = op(engine, &[state, noise], Output::Fresh(SIZE));
    engine.del(noise).unwrap();
    let next = op(engine, &[mixed], Output::Fresh(SIZE));
    engine.del(mixed).unwrap();
    engine.del(state).unwrap();
    if engine.is_past_long() {
        engine.cut_past().unwrap();
    }
    next
}

#[test]
fn a_loop_that_carries_state_needs_no_more_with_every_turn() {
    for cut in [false, true] {
        let settings = Settings { cut, ..Settings::new(Bytes(1 << 20)) };
        let mut engine = Engine::new(VirtualHost::default(), settings).unwrap();
        let mut state = op(&mut engine, &[], Output::Fresh(SIZE));
        let (mut used, mut tables) = (Vec::new(), Vec::new());
        for at in 1..=1600 {
            state = turn(&mut engine, state);
            if at % 400 == 0 {
                used.push(engine.stats().used.0);
                tables.push(engine.table_bytes().0);
            }
        }
        if cut {
            assert!(used.iter().all(|&bytes| bytes < 100 << 10), "{used:?}");
            assert!(tables[3] <= tables[0] + tables[0] / 8, "{tables:?}");
        } else {
            assert!(used[3] > 3 * used[0], "{used:?}");
        }
        // The state is what it was, and goes with its last reference.
        engine.get(state).unwrap();
        engine.del(state).unwrap();
        assert_eq!(engine.stats().used, Bytes::ZERO);
    }
}

#[test]
fn a_state_that_is_away_comes_back_before_its_past_is_cut() {
    let mut engine = engine();
    let mut state = op(&mut engine, &[], Output::Fresh(SIZE));
    for _ in 0..30 {
        state = turn(&mut engine, state);
    }
    assert!(engine.drop(state).unwrap());
    engine.cut_past().unwrap();
    assert!(engine.is_resident(state) && !engine.is_evictable(state));
    assert_eq!(engine.stats().used, SIZE);
}

#[test]
fn the_past_of_what_is_larger_is_left_alone() {
    let mut engine = engine();
    let source = engine.put(SIZE, Role::Input).unwrap();
    let passing = op(&mut engine, &[source], Output::Fresh(SIZE));
    let large = op(&mut engine, &[passing], Output::Fresh(Bytes(16 * SIZE.0)));
    engine.del(passing).unwrap();
    engine.del(source).unwrap();
    engine.cut_past().unwrap();
    assert!(engine.is_evictable(large));
    assert!(engine.drop(large).unwrap());
    engine.get(large).unwrap();
    assert_eq!(engine.stats().recomputes, 2);
}

#[test]
fn what_nothing_is_computed_from_is_not_needed() {
    let mut engine = engine();
    let x = engine.put(SIZE, Role::Input).unwrap();
    assert!(!engine.is_needed(x));
    let y = op(&mut engine, &[x], Output::Fresh(SIZE));
    assert!(engine.is_needed(x) && !engine.is_needed(y));
    engine.del(y).unwrap();
    assert!(!engine.is_needed(x));
}

#[test]
fn what_is_there_of_a_spoilt_source_stays_and_what_is_gone_is_not_brought_back() {
    let mut engine = engine();
    let x = engine.put(SIZE, Role::Input).unwrap();
    let there = op(&mut engine, &[x], Output::Fresh(SIZE));
    let gone = op(&mut engine, &[x], Output::Fresh(SIZE));
    let below = op(&mut engine, &[gone], Output::Fresh(SIZE));
    assert!(engine.drop(gone).unwrap());
    engine.spoil(x).unwrap();
    for stays in [there, below] {
        assert!(!engine.is_evictable(stays));
        assert!(!engine.drop(stays).unwrap());
    }
    assert!(!engine.is_resident(gone));
    // It's for the host to refuse that.
    assert!(engine.is_evictable(gone));
    engine.restore(gone).unwrap();
}
