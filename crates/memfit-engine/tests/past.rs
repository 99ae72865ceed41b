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
