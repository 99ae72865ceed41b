//! What the program has given up: when its bytes go, and what they are worth.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test")]

mod common;

use memfit_engine::{Call, Dealloc, Engine, Output, Settings, TensorId, VirtualHost};
use memfit_ir::{Bytes, Nanos, Role};

use common::numbers::{KB, Numbers, number, op};

fn engine(dealloc: Dealloc) -> Engine<'static, Numbers> {
    let settings = Settings { dealloc, align: Bytes(1), ..Settings::new(Bytes(64 << 10)) };
    Engine::new(Numbers::default(), settings).unwrap()
}

/// `length` tensors, each computed from the one before, the first from a source.
fn chain(engine: &mut Engine<'static, Numbers>, length: usize) -> Vec<TensorId> {
    let mut chain = vec![engine.put(KB, Role::Input).unwrap()];
    for at in 0..length {
        chain.extend(op(engine, "f", &[chain[at]], &[Output::Fresh(KB)]));
    }
    chain.remove(0);
    chain
}

#[test]
fn what_is_gone_and_held_keeps_what_it_is_computed_from() {
    let run = |dealloc| {
        let mut engine = engine(dealloc);
        let chain = chain(&mut engine, 4);
        let last = chain[3];
        let expected = number(&mut engine, last);
        assert!(engine.drop(last).unwrap() && engine.drop(chain[2]).unwrap());
        for at in [2, 1, 0] {
            engine.del(chain[at]).unwrap();
        }
        let used = engine.stats().used;
        assert_eq!(number(&mut engine, last), expected);
        (used.0 >> 10, engine.stats().recomputes)
    };
    // The second is there for the last, by way of the third, which is gone; nothing needs the first.
    assert_eq!(run(Dealloc::EvictUnneeded), (2, 2));
    assert_eq!(run(Dealloc::EagerEvict), (1, 4));
}

#[test]
fn what_serves_nothing_that_is_held_goes_at_once() {
    let mut engine = engine(Dealloc::EvictUnneeded);
    let chain = chain(&mut engine, 4);
    // Gone, but the program has no use for it; and there is what is computed from the one before, but that is in memory.
    assert!(engine.drop(chain[3]).unwrap());
    engine.del(chain[3]).unwrap();
    engine.del(chain[2]).unwrap();
    engine.del(chain[0]).unwrap();
    assert_eq!(engine.stats().used, Bytes(2 << 10), "the source and the second");
    assert!(engine.is_resident(chain[1]));
}

#[test]
fn descendants_that_nobody_asks_for_cost_nothing() {
    let settings =
        Settings { align: Bytes(1), allocator: "ideal".to_owned(), ..Settings::new(Bytes(6 << 10)) };
    let mut engine = Engine::new(VirtualHost::default(), settings).unwrap();
    let mut made = vec![engine.put(KB, Role::Input).unwrap()];
    let mut run = |engine: &mut Engine<'static, VirtualHost>, read: usize, time| {
        let reads = [made[read]];
        let outputs = &[Output::Fresh(KB)];
        let call = Call { kind: "f", reads: &reads, outputs, time: Nanos(time), ..Call::default() };
        engine.apply(&call, &mut made).unwrap();
        made[made.len() - 1]
    };
    let (asked, idle) = (run(&mut engine, 0, 10), run(&mut engine, 0, 10));
    let held = run(&mut engine, 1, 10);
    let between = run(&mut engine, 2, 100);
    let last = run(&mut engine, 4, 1000);
    // `held` will be computed from `asked` again; `between`, ten times as dear, only if `last` goes.
    assert!(engine.drop(held).unwrap());
    engine.del(between).unwrap();
    // Both were used about as long ago, the other a little longer.
    run(&mut engine, 0, 1_000_000);
    assert_eq!(engine.stats().used, Bytes(5 << 10));
    run(&mut engine, 0, 1);
    assert_eq!(engine.stats().used, Bytes(6 << 10));
    run(&mut engine, 0, 1);
    assert!(engine.is_resident(asked) && engine.is_resident(last) && !engine.is_resident(idle));
}
