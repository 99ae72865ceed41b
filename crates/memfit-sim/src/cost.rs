//! Run times that can be computed with: finite and above zero, with a warning where they were not.

use memfit_ir::{Bytes, Compute, Device, Graph, Nanos, OpId, Price};

/// What was wrong with a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Not a number: a rate of the device is not one.
    NotANumber,
    /// Beyond all measure: a rate of the device is zero, or the measured time is the largest number.
    Infinite,
    /// Below zero: a rate of the device is.
    Negative,
    /// Nothing: the measured time is 0.
    Zero,
}

/// A cost that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The op.
    pub op: OpId,
    /// What was wrong.
    pub fault: Fault,
    /// What is used instead.
    pub used: Nanos,
}

impl Warning {
    /// For people: ``op7 `conv1`: its cost is infinite; 2 µs is used``.
    #[must_use]
    pub fn message(&self, graph: &Graph) -> String {
        let fault = match self.fault {
            Fault::NotANumber => "not a number",
            Fault::Infinite => "infinite",
            Fault::Negative => "negative",
            Fault::Zero => "zero",
        };
        let name = graph.op(self.op).name;
        format!("{} `{name}`: its cost is {fault}; `{}` is used", self.op, self.used)
    }
}

/// The run time of every op, by default and for each of its algorithms.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    times: Vec<Nanos>,
    /// By op, where its alternatives begin in `others`.
    first: Vec<usize>,
    others: Vec<Nanos>,
    warnings: Vec<Warning>,
}

/// No op of a training step takes longer: some 11 days.
const LONGEST: Nanos = Nanos(1_000_000_000_000_000);

impl Costs {
    /// The costs of `graph` on `device`: as [`Device::time`] says, except that what is no number, infinite or
    /// negative becomes the launch time, and zero 1 ns. Time O(ops + algorithms).
    #[must_use]
    pub fn of(graph: &Graph, device: &Device) -> Costs {
        let mut costs = Costs::default();
        for id in graph.op_ids() {
            let op = graph.op(id);
            let counted = |flops: f64, moved: Bytes, time: Nanos| {
                let compute = flops / device.flops_for(op.dtype);
                let memory = moved.0 as f64 / (device.bandwidth * device.efficiency.1);
                estimated(compute).or(estimated(memory)).or(measured(time))
            };
            let fault = match op.time {
                Some(time) => measured(time),
                None => counted(op.flops, op.moved, device.time(&op)),
            };
            let time = costs.sane(id, device.time(&op), fault, device);
            costs.times.push(time);
            costs.first.push(costs.others.len());
            for algorithm in op.algorithms {
                let time = device.time_by(&op, algorithm);
                let fault = match algorithm.price {
                    Price::Time(time) => measured(time),
                    Price::Work { flops, moved } => counted(flops as f64, moved, time),
                };
                let time = costs.sane(id, time, fault, device);
                costs.others.push(time);
            }
        }
        costs
    }

    fn sane(&mut self, op: OpId, time: Nanos, fault: Option<Fault>, device: &Device) -> Nanos {
        let Some(fault) = fault else { return time };
        let used = match fault {
            Fault::Zero => Nanos(1),
            Fault::NotANumber | Fault::Infinite | Fault::Negative => device.launch.max(Nanos(1)).min(LONGEST),
        };
        self.warnings.push(Warning { op, fault, used });
        used
    }

    /// Time of `op` with its default algorithm.
    #[must_use]
    pub fn time(&self, op: OpId) -> Nanos {
        self.times.get(op.index()).copied().unwrap_or_default()
    }

    /// Times of the alternatives of `op`, in the order of its algorithms.
    #[must_use]
    pub fn others(&self, op: OpId) -> &[Nanos] {
        let from = self.first.get(op.index()).copied().unwrap_or(self.others.len());
        let end = self.first.get(op.index() + 1).copied().unwrap_or(self.others.len());
        &self.others[from..end]
    }

    /// Time of a compute step; zero where its op or algorithm does not exist.
    #[must_use]
    pub fn of_step(&self, compute: &Compute) -> Nanos {
        match usize::from(compute.algorithm).checked_sub(1) {
            None => self.time(compute.op),
            Some(other) => self.others(compute.op).get(other).copied().unwrap_or_default(),
        }
    }

    /// Sum over all ops, each once.
    #[must_use]
    pub fn total(&self) -> Nanos {
        self.times.iter().copied().sum()
    }

    /// What was replaced, in the order of the ops.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }
}

fn measured(time: Nanos) -> Option<Fault> {
    match time {
        Nanos(0) => Some(Fault::Zero),
        long if long > LONGEST => Some(Fault::Infinite),
        _ => None,
    }
}

fn estimated(seconds: f64) -> Option<Fault> {
    if seconds.is_nan() {
        Some(Fault::NotANumber)
    } else if seconds < 0.0 {
        Some(Fault::Negative)
    } else if seconds.is_infinite() {
        Some(Fault::Infinite)
    } else {
        None
    }
}
