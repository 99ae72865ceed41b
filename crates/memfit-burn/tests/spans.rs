//! What memfit does is seen in spans of `tracing`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use burn::tensor::Tensor;
use memfit_burn::{Budget, Flex, FlexDevice, Memfit, attempt, enable, step};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The fields of a span that are numbers.
#[derive(Default)]
struct Numbers(BTreeMap<&'static str, u64>);

impl Visit for Numbers {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value);
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

/// Spans with their numbers, in the order in which they began.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(&'static str, Numbers)>>>);

impl Subscriber for Seen {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "memfit"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut numbers = Numbers::default();
        span.record(&mut numbers);
        let mut seen = self.0.lock().unwrap();
        seen.push((span.metadata().name(), numbers));
        Id::from_u64(seen.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, _event: &Event<'_>) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

#[test]
fn ops_repetitions_and_steps_are_spans_with_bytes() {
    const SIDE: usize = 64;
    const BYTES: u64 = (SIDE * SIDE * 4) as u64;
    type B = Memfit<Flex>;
    let device = FlexDevice;
    let seen = Seen::default();
    tracing::subscriber::with_default(seen.clone(), || {
        // Room for four of eight: the first are computed again.
        enable(&device, Budget::of(4 * BYTES)).unwrap();
        let sum = attempt(&device, || {
            let first = Tensor::<B, 2>::ones([SIDE, SIDE], &device).sum().expand([SIDE, SIDE]);
            let chain: Vec<_> = (1..8).map(|times| first.clone().mul_scalar(times)).collect();
            let all = chain.into_iter().rev().map(|link| link.sum().into_scalar());
            all.sum::<f32>()
        });
        let ones = (SIDE * SIDE) as f32;
        assert_eq!(sum.unwrap(), 28.0 * ones * ones);
        step(&device).unwrap();
    });
    let seen = seen.0.lock().unwrap();
    let of = |name: &str| {
        seen.iter().filter(|(of, _)| *of == name).map(|(_, numbers)| &numbers.0).collect::<Vec<_>>()
    };
    let (runs, steps) = (of("run"), of("step"));
    assert!(runs.iter().any(|run| run["repetition"] == 0 && run["bytes"] == BYTES), "{runs:?}");
    assert!(
        runs.iter().any(|run| run["repetition"] > 0 && run["bytes"] == BYTES),
        "something was computed again"
    );
    assert!(of("release").iter().any(|release| release["bytes"] == BYTES));
    assert_eq!(steps.iter().map(|step| step["budget"]).collect::<Vec<u64>>(), [4 * BYTES]);
}
