//! What a program holds beyond its last reader counts in plans of recorded steps: it is there when its sources are overwritten.

#![allow(clippy::unwrap_used, reason = "a test")]

use memfit::StepPlanner;
use memfit::engine::replay::{Event, Trace, recorded};
use memfit::engine::{Output, Planner as _, Settings};
use memfit::ir::{Bytes, Effect, Nanos, Role, ValueId};

const SIZE: Bytes = Bytes(1 << 20);

/// `layers` ops, each with a parameter of its own; a loss; their gradients; and the update of each parameter. The loss goes last
/// of all, as a local variable does, or when its gradient has been computed.
fn step(layers: u32, keeps: bool) -> Trace {
    let mut trace = Trace { kinds: vec!["op".to_owned()], ..Trace::default() };
    let mut made = 0;
    let mut put = |trace: &mut Trace, role| {
        trace.events.push(Event::Put { size: Bytes(64), role });
        made += 1;
        made - 1
    };
    let parameters: Vec<u32> = (0..layers).map(|_| put(&mut trace, Role::Parameter)).collect();
    let input = put(&mut trace, Role::Input);
    let mut call = |trace: &mut Trace, reads: Vec<u32>, output: Output| {
        let event = Event::Call {
            kind: 0,
            reads,
            outputs: vec![output],
            time: Nanos(1_000_000),
            workspace: Bytes::ZERO,
            effect: Effect::Pure,
        };
        trace.events.push(event);
        made += 1;
        made - 1
    };
    let mut values = vec![input];
    for &parameter in &parameters {
        let before = values[values.len() - 1];
        values.push(call(&mut trace, vec![before, parameter], Output::Fresh(SIZE)));
    }
    let loss = call(&mut trace, vec![values[values.len() - 1]], Output::Fresh(Bytes(64)));
    let mut gradient = call(&mut trace, vec![loss], Output::Fresh(SIZE));
    if !keeps {
        trace.events.push(Event::Release(loss));
    }
    let mut gradients = Vec::new();
    for (at, &parameter) in parameters.iter().enumerate().rev() {
        gradients.push(call(&mut trace, vec![gradient, values[at]], Output::Fresh(Bytes(64))));
        let next = call(&mut trace, vec![gradient, values[at + 1], parameter], Output::Fresh(SIZE));
        trace.events.extend([Event::Release(gradient), Event::Release(values[at + 1])]);
        gradient = next;
    }
    trace.events.push(Event::Release(gradient));
    for (&parameter, &gradient) in parameters.iter().rev().zip(&gradients) {
        let updated = call(&mut trace, vec![parameter, gradient], Output::InPlace(0));
        trace.events.extend([Event::Release(parameter), Event::Release(gradient)]);
        trace.held.push(updated);
    }
    if keeps {
        trace.events.push(Event::Release(loss));
    }
    trace.events.push(Event::Release(input));
    trace
}

#[test]
fn what_is_held_beyond_its_last_reader_is_not_computed_again() {
    for keeps in [false, true] {
        let trace = step(8, keeps);
        let recorded = recorded(&trace).unwrap();
        let loss = ValueId(8 + 1 + 8);
        assert_eq!(recorded.held_to_the_end().contains(&loss), keeps);
        let peak = trace.base().peak;
        for (part, most) in [(100, 0), (80, 3), (60, 6)] {
            let settings = Settings {
                align: Bytes(1),
                allocator: "ideal".to_owned(),
                ..Settings::new(Bytes(peak.0 * part / 100))
            };
            let mut planner = StepPlanner::new(0).by("recompute:best").unwrap();
            let found = planner.plan(&recorded, &settings).unwrap();
            // The whole way to the loss would be eight ops more.
            assert!(found.ns <= most * 1_000_000, "{keeps}, {part} %: {} ns", found.ns);
        }
    }
}
