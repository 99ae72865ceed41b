//! What Burn's dashboard shows of memory.

use std::sync::Arc;

use burn_train::metric::{
    Metric, MetricAttributes, MetricMetadata, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
};
use memfit::Bytes;

use super::backend::Device;
use super::session::{Report, report};

/// The most that tensors of a device have taken since `enable`, in MiB, for Burn's trainer: its numbers are plotted and logged, and the text beside
/// them tells the budget, how many ops ran again and what share of the time that was, and what was moved to other memory.
///
/// `SupervisedTraining::new(..).metric_train_numeric(MemoryMetric::new(&device))`.
#[derive(Clone)]
pub struct MemoryMetric<D: Device> {
    name: Arc<String>,
    device: D,
    last: f64,
}

impl<D: Device> MemoryMetric<D> {
    /// Of `device`.
    #[must_use]
    pub fn new(device: &D) -> MemoryMetric<D> {
        MemoryMetric { name: Arc::new("Tensor Memory".to_owned()), device: device.clone(), last: 0.0 }
    }
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / f64::from(1 << 20)
}

fn text(report: &Report) -> String {
    let engine = report.engine;
    let of = report.budget.map_or(String::new(), |budget| format!(" of {budget}"));
    let share = engine.recompute_ns as f64 / engine.first_ns.max(1) as f64 * 100.0;
    let moved = engine.stored + engine.loaded;
    format!(
        "peak {}{of}, {} ops recomputed ({share:.0} % of time), {moved} moved",
        engine.peak, engine.recomputes
    )
}

impl<D: Device> Metric for MemoryMetric<D> {
    type Input = ();

    fn name(&self) -> Arc<String> {
        Arc::clone(&self.name)
    }

    fn description(&self) -> Option<String> {
        Some("the most that tensors have taken since memfit was enabled".to_owned())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: Some("MiB".to_owned()), higher_is_better: false }.into()
    }

    fn update(&mut self, _item: &(), _metadata: &MetricMetadata) -> SerializedEntry {
        let report = report(&self.device);
        self.last = mib(report.engine.peak);
        SerializedEntry::new(text(&report), self.last.to_string())
    }

    fn clear(&mut self) {}
}

impl<D: Device> Numeric for MemoryMetric<D> {
    fn value(&self) -> NumericEntry {
        NumericEntry::Value(self.last)
    }

    fn running_value(&self) -> NumericEntry {
        self.value()
    }
}

#[cfg(test)]
mod tests {
    use memfit::engine::Stats;

    use super::*;

    #[test]
    fn the_text_has_all_four() {
        let engine = Stats {
            peak: Bytes(3 << 20),
            recomputes: 7,
            recompute_ns: 1,
            first_ns: 4,
            stored: Bytes(1 << 20),
            loaded: Bytes(1 << 20),
            ..Stats::default()
        };
        let report = Report { engine, budget: Some(Bytes(4 << 20)), ..Report::default() };
        let expected = "peak 3 MiB of 4 MiB, 7 ops recomputed (25 % of time), 2 MiB moved";
        assert_eq!(text(&report), expected);
        let unlimited = text(&Report { budget: None, ..report });
        assert!(unlimited.starts_with("peak 3 MiB, 7 ops"), "{unlimited}");
    }
}
