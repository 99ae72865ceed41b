//! Recomputation that takes many times as long as the program's own ops ends in a fault that names what would do.
#![allow(clippy::unwrap_used, reason = "a test")]

use memfit_engine::{Call, Engine, Fault, Output, Settings, Storing, TensorId, VirtualHost};
use memfit_ir::{Bytes, Nanos, Role};

const SIZE: Bytes = Bytes(1 << 10);
const LENGTH: usize = 64;

fn engine(blocks: u64) -> Engine<'static, VirtualHost> {
    let settings = Settings { storing: Storing::Never, ..Settings::new(Bytes(blocks * SIZE.0)) };
    Engine::new(VirtualHost::default(), settings).unwrap()
}

fn op(engine: &mut Engine<'_, VirtualHost>, reads: &[TensorId]) -> Result<TensorId, Fault> {
    let mut made = Vec::new();
    let outputs = [Output::Fresh(SIZE)];
    let call = Call { kind: "op", reads, outputs: &outputs, time: Nanos(1_000_000), ..Call::default() };
    engine.apply(&call, &mut made)?;
    Ok(made[0])
}

/// A chain that is read from its end, twice, with all of it held.
fn walk(engine: &mut Engine<'_, VirtualHost>) -> Result<(), Fault> {
    let mut chain = vec![engine.put(SIZE, Role::Input)?];
    for at in 0..LENGTH {
        chain.push(op(engine, &[chain[at]])?);
    }
    for _ in 0..2 {
        for &tensor in chain.iter().rev() {
            engine.restore(tensor)?;
        }
    }
    Ok(())
}

#[test]
fn the_fault_names_a_budget_that_does() {
    let mut tight = engine(4);
    tight.limit_pace(Some(2.0), Nanos(10_000_000));
    let Err(Fault::Thrashing(thrashing)) = walk(&mut tight) else { panic!("it thrashes") };
    let (own, again) = (thrashing.own.0, thrashing.again.0);
    assert!(again > 2 * own + 10_000_000, "{thrashing}");
    // The last repetition alone is beyond what is borne.
    assert!(again <= 2 * own + 10_000_000 + 1_100_000, "{thrashing}");
    let told = thrashing.to_string();
    for part in ["`op`", "`4 KiB`", "less may do"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let enough = thrashing.no_room.enough;
    assert!(enough <= Bytes((LENGTH as u64 + 2) * SIZE.0));
    let mut roomy = engine(enough.0.div_ceil(SIZE.0));
    roomy.limit_pace(Some(2.0), Nanos(10_000_000));
    walk(&mut roomy).unwrap();
}

#[test]
fn without_a_limit_it_goes_on_and_after_the_fault_as_well() {
    let mut free = engine(4);
    walk(&mut free).unwrap();
    let all = free.stats().recomputes;
    let mut limited = engine(4);
    limited.limit_pace(Some(1e9), Nanos(0));
    walk(&mut limited).unwrap();
    assert_eq!(limited.stats().recomputes, all);
    let mut tight = engine(4);
    tight.limit_pace(Some(1.0), Nanos(1_000_000));
    assert!(matches!(walk(&mut tight), Err(Fault::Thrashing(_))));
    // What the program holds is there as soon as there is room.
    tight.lift_budget();
    for tensor in tight.held() {
        tight.restore(tensor).unwrap();
        assert!(tight.is_resident(tensor));
    }
}
