//! Which strategies a goal comes to: those that are named, else the defaults that its means allow.

use memfit_ir::{Bytes, Codec, Device, Graph, Role, Tier};
use memfit_plan::Means;
use memfit_plan::families::{self, Named, Strategy, Unknown, default_of};
use memfit_plan::order::Order;
use memfit_plan::place::Placer;

use crate::{Failure, Goal};

/// What bounds live bytes instead of the arena; stands among the names of strategies.
pub(crate) const LIVE: &str = "budget:live";

/// The strategies that make a plan, and where.
pub(crate) struct Choice {
    pub(crate) order: &'static dyn Order,
    pub(crate) placer: &'static dyn Placer,
    /// Asked where keeping everything does not fit, in the order in which ties go.
    pub(crate) schedulers: Vec<Named>,
    /// Quick ones whose plans are held against those of `schedulers`, where nobody has named any.
    pub(crate) others: Vec<Named>,
    /// Whether the budget is for what is live, wherever it lies.
    pub(crate) live: bool,
    /// The goal's device, with as much of other memory as may be used.
    pub(crate) device: Device,
    /// Whether no scheduler is named, and none is forbidden.
    by_default: bool,
    /// Whether no scheduler is named.
    is_open: bool,
}

impl From<Unknown> for Failure {
    fn from(Unknown { message, hint }: Unknown) -> Failure {
        Failure::Usage { message, hint }
    }
}

impl Choice {
    /// What `goal` says, for whichever graph.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for unknown names, or a disk that isn't there.
    pub(crate) fn of(goal: &Goal) -> Result<Choice, Failure> {
        let Goal { device, options, .. } = goal;
        let mut choice = Choice {
            order: families::order(default_of("order"))?,
            placer: families::placer(default_of("place"))?,
            schedulers: Vec::new(),
            others: Vec::new(),
            live: false,
            device: device.clone(),
            by_default: options.means.recompute,
            is_open: true,
        };
        for name in &options.strategies {
            if name == LIVE {
                choice.live = true;
                continue;
            }
            match families::find(name)? {
                (_, Strategy::Order(order)) => choice.order = order,
                (_, Strategy::Placer(placer)) => choice.placer = placer,
                (family, Strategy::Scheduler(scheduler)) => choice.add(Named { family, scheduler }),
                // No plan has one, and `find` knows none.
                (_, Strategy::Evictor(_) | Strategy::Allocator(_)) => {}
            }
        }
        choice.is_open = choice.schedulers.is_empty();
        choice.by_default &= choice.is_open;
        choice.schedulers.retain(|one| one.family.means.are_served_by(options.means));
        let recompute = choice.by_default && options.lanes <= 1;
        // Who gives other memory wants it used, also beside a recomputation that is named.
        let offload = choice.use_tiers(goal)? && !choice.moves();
        choice.add_defaults(Means { recompute, offload, compress: false });
        Ok(choice)
    }

    /// Whether one of the schedulers moves values.
    pub(crate) fn moves(&self) -> bool {
        self.schedulers.iter().any(|one| one.family.means.moves())
    }

    /// Adds a scheduler that is named.
    fn add(&mut self, named: Named) {
        if !named.family.means.moves() {
            self.schedulers.retain(|one| one.family.means.moves());
        }
        self.schedulers.push(named);
    }

    /// Adds the default of every family that does with `means`.
    fn add_defaults(&mut self, means: Means) {
        let known: Vec<String> = self.schedulers.iter().map(|one| one.name()).collect();
        let defaults = Named::defaults().filter(|one| one.family.means.are_served_by(means));
        self.schedulers.extend(defaults.filter(|one| !known.contains(&one.name())));
        self.schedulers.sort_by_key(|one| one.turn());
    }

    /// Gives the device as much of other memory as `goal` says. Whether there is some that was asked for.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for a disk that the device hasn't got: plans can't tell how fast it is.
    fn use_tiers(&mut self, goal: &Goal) -> Result<bool, Failure> {
        let (host, disk) = (goal.options.host_budget, goal.options.disk_budget);
        let is_some = |budget: Option<Bytes>| budget.is_some_and(|most| most > Bytes::ZERO);
        let named = self.moves();
        if let Some(most) = host.filter(|_| is_some(host) || is_some(disk) || named) {
            self.device.host_memory = most;
        }
        match (disk, &mut self.device.disk) {
            (None, _) => {}
            (Some(Bytes::ZERO), disk) => *disk = None,
            (Some(most), Some(disk)) => {
                disk.capacity = most;
                if host.is_none() && !named {
                    self.device.host_memory = Bytes::ZERO;
                }
            }
            (Some(_), None) => {
                return Err(Failure::usage(
                    format!("`{}` has no disk", self.device.name),
                    "a device file says what there is: `disk = { capacity = \"1TB\", link = { out = \"3GB/s\", in = \"3GB/s\", latency = \"15us\" } }`",
                ));
            }
        }
        if !goal.options.means.offload && self.schedulers.iter().any(|one| one.family.means.offload) {
            self.forget_tiers();
        }
        Ok(goal.options.means.offload && (is_some(host) || is_some(disk)))
    }

    /// Bytes of other memory in which parameters and state may be at home: none where nothing leaves the device.
    pub(crate) fn elsewhere(&self) -> Bytes {
        if !self.schedulers.iter().any(|one| one.family.means.offload) {
            return Bytes::ZERO;
        }
        let limits = self.device.limits();
        let tiers = Tier::ALL.iter().filter(|(tier, _)| self.device.link_to(*tier).is_some());
        tiers.map(|&(tier, _)| limits.tier(tier)).sum()
    }

    /// Bytes of `graph`'s state that need not be there, since it may be at home encoded: none where that is not allowed.
    pub(crate) fn quantised(&self, graph: &Graph, goal: &Goal) -> Bytes {
        let codec = Codec::State8;
        let compresses = self.schedulers.iter().any(|one| one.family.means.compress);
        if !compresses || !goal.options.lossy.contains(&codec) {
            return Bytes::ZERO;
        }
        let values = graph.value_ids().map(|id| graph.value(id));
        let state = values.filter(|value| value.role == Role::State && value.producer.is_none());
        state.map(|value| value.size.saturating_sub(codec.room(&value))).sum()
    }

    /// Leaves what waits no other way than encoded.
    fn forget_tiers(&mut self) {
        (self.device.link, self.device.disk) = (None, None);
    }

    /// Whether lanes and device can do what the schedulers are asked for.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] on several lanes, or where values are to be moved by a device without a link to other memory.
    pub(crate) fn check(&self, goal: &Goal) -> Result<(), Failure> {
        let Some(asked) = self.schedulers.first() else { return Ok(()) };
        if goal.options.lanes > 1 {
            return Err(Failure::usage(
                format!("`{}` does not go together with {} lanes", asked.name(), goal.options.lanes),
                "on several lanes every op runs once and nothing is moved: leave out the strategy or `--lanes`",
            ));
        }
        let tiered = goal.options.means.offload && self.schedulers.iter().any(|one| one.family.means.offload);
        if tiered && self.device.link.is_none() && self.device.disk.is_none() {
            return Err(Failure::usage(
                format!("`{}` has no link to host memory", self.device.name),
                "a device file says how fast it is: `link = { out = \"12GB/s\", in = \"12GB/s\", latency = \"10us\" }`",
            ));
        }
        Ok(())
    }

    /// Whether nobody has named a scheduler, and any will do.
    pub(crate) fn is_by_default(&self) -> bool {
        self.by_default
    }

    /// The choice for `graph`. Where that says that values are sparse they may wait encoded, unless strategies are asked for by
    /// name: that takes no memory elsewhere, so nobody has to ask for it.
    pub(crate) fn for_graph(mut self, graph: &Graph, goal: &Goal) -> Choice {
        let compress = goal.options.means.compress && goal.options.lanes <= 1;
        if self.by_default && compress && (graph.is_sparse() || !goal.options.lossy.is_empty()) {
            if !self.moves() {
                self.forget_tiers();
            }
            self.add_defaults(Means { recompute: true, offload: false, compress });
        }
        if self.is_open && !self.schedulers.is_empty() {
            self.add_others(goal);
        }
        self
    }

    /// Adds the quick ones that have what they need. Nobody has asked for other memory unless a default uses it.
    fn add_others(&mut self, goal: &Goal) {
        let Means { recompute, compress, .. } = goal.options.means;
        let offload =
            self.schedulers.iter().any(|one| one.family.means == Means { offload: true, ..Means::NONE });
        if !offload {
            self.forget_tiers();
        }
        let allowed = Means { recompute, offload, compress };
        self.others = Named::quick().filter(|one| one.family.means.are_served_by(allowed)).collect();
    }

    /// Whether plans of `named` are only held against those of the defaults.
    pub(crate) fn is_other(&self, named: Named) -> bool {
        self.others.iter().any(|one| one.name() == named.name())
    }

    /// What all that are asked may do together.
    pub(crate) fn means(&self) -> Means {
        let all = self.schedulers.iter().chain(&self.others).map(|one| one.family.means);
        let both = |one: Means, other: Means| Means {
            recompute: one.recompute || other.recompute,
            offload: one.offload || other.offload,
            compress: one.compress || other.compress,
        };
        all.fold(Means::NONE, both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Options};

    fn names(device: &str, options: Options) -> String {
        let device = crate::input::device(device).unwrap();
        let goal = Goal { options, ..Goal::new(device, Budget::Device) };
        let names: Vec<String> = Choice::of(&goal).unwrap().schedulers.into_iter().map(Named::name).collect();
        names.join(" ")
    }

    fn named(names: &[&str]) -> Options {
        Options { strategies: names.iter().map(|&name| name.to_owned()).collect(), ..Options::default() }
    }

    #[test]
    fn who_names_schedulers_gets_those_and_who_gives_memory_gets_it_used() {
        let host = Some(Bytes(1 << 30));
        let no_runs = Means { recompute: false, ..Means::ALL };
        let no_moves = Means { offload: false, ..Means::ALL };
        for (options, expected) in [
            (named(&[]), "recompute:best"),
            (named(&["recompute:dtr"]), "recompute:dtr"),
            (named(&["recompute:dtr", "recompute:chain"]), "recompute:chain"),
            (named(&["hybrid:best", "offload:g10"]), "offload:g10 hybrid:best"),
            (named(&["offload:g10", "recompute:dtr"]), "offload:g10 recompute:dtr"),
            (Options { host_budget: host, ..named(&[]) }, "offload:best recompute:best hybrid:best"),
            (Options { host_budget: host, ..named(&["recompute:dtr"]) }, "offload:best recompute:dtr"),
            (Options { host_budget: host, ..named(&["offload:lru"]) }, "offload:lru"),
            (Options { host_budget: Some(Bytes::ZERO), ..named(&[]) }, "recompute:best"),
            (Options { means: no_runs, ..named(&["hybrid:best"]) }, ""),
            (Options { means: no_runs, host_budget: host, ..named(&[]) }, "offload:best"),
            (Options { means: no_moves, host_budget: host, ..named(&[]) }, "recompute:best"),
            (Options { means: no_moves, ..named(&["offload:best", "compress:best"]) }, "compress:best"),
            (Options { means: Means::NONE, ..named(&[]) }, ""),
            (Options { lanes: 2, ..named(&[]) }, ""),
        ] {
            assert_eq!(names("A100-80", options.clone()), expected, "{options:?}");
        }
    }

    #[test]
    fn only_host_memory_that_is_asked_for_is_used() {
        let choice = |options| {
            let goal =
                Goal { options, ..Goal::new(crate::input::device("g10-a100").unwrap(), Budget::Device) };
            Choice::of(&goal).unwrap()
        };
        let disk = Options { disk_budget: Some(Bytes(1 << 30)), ..Options::default() };
        let found = choice(disk.clone());
        assert_eq!(
            (found.device.host_memory, found.device.disk.unwrap().capacity),
            (Bytes::ZERO, Bytes(1 << 30))
        );
        assert!(found.moves());
        let both = choice(Options { host_budget: Some(Bytes(7)), ..disk });
        assert_eq!(both.device.host_memory, Bytes(7));
        let none = choice(Options { disk_budget: Some(Bytes::ZERO), ..Options::default() });
        assert!(none.device.disk.is_none() && !none.moves());
    }
}
