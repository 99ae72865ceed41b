//! What the user wants: a budget, and which means may be used.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use memfit_ir::{Bytes, Device, Graph};
use memfit_plan::schedule::{MOVING, Moving, moving};

use crate::Failure;

/// How much device memory a plan may use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Budget {
    /// All of the device's memory.
    #[default]
    Device,
    /// That many bytes.
    Bytes(Bytes),
    /// A fraction of the unconstrained peak: `0.6` for `60%`.
    OfPeak(f64),
    /// `floor + fraction × (peak − floor)`, where the floor is the persistent bytes plus the largest
    /// single-op working set: `0.6` for `floor+60%`.
    AboveFloor(f64),
}

impl Budget {
    /// The budget in bytes, rounded down; `floor` and `peak` are those of the graph at hand.
    #[must_use]
    pub fn resolve(self, device: &Device, floor: Bytes, peak: Bytes) -> Bytes {
        match self {
            Budget::Device => device.memory,
            Budget::Bytes(bytes) => bytes,
            Budget::OfPeak(fraction) => share(peak, fraction),
            Budget::AboveFloor(fraction) => floor + share(peak.saturating_sub(floor), fraction),
        }
    }
}

/// `fraction` of `bytes`, rounded down, exact where `fraction` is 1.
fn share(bytes: Bytes, fraction: f64) -> Bytes {
    if fraction == 1.0 {
        return bytes;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Bytes((bytes.0 as f64 * fraction) as u64)
}

/// A budget that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a budget: write a size (`8GiB`), a share of the peak (`60%`) or of what lies above the floor (`floor+60%`){}",
    if meant.is_empty() { String::new() } else { format!("; did you mean {meant}?") }
)]
pub struct BadBudget {
    text: String,
    /// What it may have been meant to be, for people.
    meant: String,
}

impl BadBudget {
    /// `text`, with a guess where a unit is cut short or missing.
    fn new(text: &str) -> BadBudget {
        let trimmed = text.trim();
        let number = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let meant = match (number.parse::<f64>().is_ok(), trimmed[number.len()..].trim()) {
            (false, _) => String::new(),
            (true, "") => format!("`{number}%` or `{number}GiB`"),
            (true, unit) => match unit.to_ascii_lowercase().as_str() {
                short @ ("k" | "m" | "g" | "t") => format!("`{number}{}iB`", short.to_ascii_uppercase()),
                _ => String::new(),
            },
        };
        BadBudget { text: text.to_owned(), meant }
    }
}

impl FromStr for Budget {
    type Err = BadBudget;

    fn from_str(text: &str) -> Result<Budget, BadBudget> {
        let bad = || BadBudget::new(text);
        let percent = |number: &str| {
            let share: f64 = number.trim().parse().map_err(|_| bad())?;
            let plausible = (0.0..=10_000.0).contains(&share);
            if plausible { Ok(share / 100.0) } else { Err(bad()) }
        };
        let trimmed = text.trim();
        match trimmed.strip_suffix('%') {
            Some(number) => match number.trim().strip_prefix("floor+") {
                Some(above) => percent(above).map(Budget::AboveFloor),
                None => percent(number).map(Budget::OfPeak),
            },
            None if trimmed == "floor" => Ok(Budget::AboveFloor(0.0)),
            // A bare number this small is a share or a size whose unit was forgotten.
            None if trimmed.parse::<u64>().is_ok_and(|bytes| (1..1000).contains(&bytes)) => Err(bad()),
            None => trimmed.parse().map(Budget::Bytes).map_err(|_| bad()),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Budget::Device => f.write_str("all of the device"),
            Budget::Bytes(bytes) => bytes.fmt(f),
            Budget::OfPeak(share) => write!(f, "{} %", share * 100.0),
            Budget::AboveFloor(share) => write!(f, "floor + {} %", share * 100.0),
        }
    }
}

/// Which buffers may share bytes when ops run on several lanes: sharing can order two ops that the graph leaves
/// unordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneRule {
    /// Those whose sharing orders no two ops; all of those.
    #[default]
    Reachable,
    /// Those whose ops have the same colour, by longest paths, as MXNet's planner does: a heuristic.
    Colours,
    /// All: ops may wait for each other because of memory.
    AllowSerialize,
}

/// Which ops may run again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recomputing {
    /// Every op runs once, whatever the budget.
    Never,
    /// As the default strategy says, where keeping everything does not fit. On several lanes every op runs once.
    #[default]
    Default,
    /// As the strategy of this name says. Not on several lanes.
    By(String),
}

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Device memory it may use.
    pub budget: Budget,
    /// Where it runs.
    pub device: Device,
    /// Name of the order, see `memfit strategies`.
    pub order: String,
    /// Which recomputation is asked where keeping everything does not fit.
    pub recompute: Recomputing,
    /// Which strategies that move values are asked where keeping everything does not fit, as `offload:best`; none: nothing
    /// is moved. What host memory they may use, and the link there, are the device's. Of all means the fastest plan is taken.
    pub moving: Vec<String>,
    /// Name of the placer.
    pub placer: String,
    /// Whether the budget is for what is live, wherever it lies: for hosts that choose addresses themselves. The
    /// arena may then be larger.
    pub live: bool,
    /// Whether the host replays generator state, so that random ops may run again; `None`: as the graph says of the
    /// host it comes from.
    pub replays_random: Option<bool>,
    /// Streams of execution that ops are spread over.
    pub lanes: u16,
    /// How lanes are kept unordered.
    pub lane_rule: LaneRule,
    /// Whether an output may take over an input's bytes where the graph permits it but doesn't demand it.
    pub in_place: bool,
    /// Whether buffers that are not live together may share bytes.
    pub co_share: bool,
    /// Start of every random sequence.
    pub seed: u64,
    /// How much work searches do, in multiples of their default.
    pub effort: u32,
}

impl Goal {
    /// The default means on `device`.
    #[must_use]
    pub fn new(device: Device, budget: Budget) -> Goal {
        Goal {
            budget,
            device,
            order: "best".to_owned(),
            recompute: Recomputing::Default,
            moving: Vec::new(),
            placer: "best".to_owned(),
            live: false,
            replays_random: None,
            lanes: 1,
            lane_rule: LaneRule::Reachable,
            in_place: true,
            co_share: true,
            seed: 0,
            effort: 1,
        }
    }

    /// Name of the recomputation to ask.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] where one is asked for by name on several lanes.
    pub(crate) fn recomputation(&self) -> Result<Option<&str>, Failure> {
        match &self.recompute {
            Recomputing::Never => Ok(None),
            Recomputing::Default => Ok((self.lanes <= 1).then_some("best")),
            Recomputing::By(name) if self.lanes <= 1 => Ok(Some(name)),
            Recomputing::By(name) => Err(Failure::usage(
                format!("`recompute:{name}` does not go together with {} lanes", self.lanes),
                "on several lanes every op runs once: leave out the strategy or `--lanes`",
            )),
        }
    }

    /// Whether the goal's device can do what it says of moving.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] where something is to be moved on several lanes, or by a device without a link to host memory.
    pub(crate) fn may_move(&self) -> Result<(), Failure> {
        let needs_tier = |name: &&String| moving(name).is_none_or(|(family, _)| !family.encodes);
        let Some(asked) = self.moving.first() else { return Ok(()) };
        if self.lanes > 1 {
            return Err(Failure::usage(
                format!("`{asked}` does not go together with {} lanes", self.lanes),
                "on several lanes nothing is moved: leave out the strategy or `--lanes`",
            ));
        }
        let tiered = self.moving.iter().any(|name| needs_tier(&name));
        if tiered && self.device.link.is_none() && self.device.disk.is_none() {
            return Err(Failure::usage(
                format!("`{}` has no link to host memory", self.device.name),
                "a device file says how fast it is: `link = { out = \"12GB/s\", in = \"12GB/s\", latency = \"10us\" }`",
            ));
        }
        Ok(())
    }

    /// The goal for `graph`. Where that says that values are sparse they may wait encoded, unless strategies are asked for by name:
    /// that takes no memory elsewhere, so nobody has to ask for it.
    pub(crate) fn for_graph(&self, graph: &Graph) -> Cow<'_, Goal> {
        if self.recompute != Recomputing::Default || self.lanes > 1 || !graph.is_sparse() {
            return Cow::Borrowed(self);
        }
        let mut goal = self.clone();
        if goal.moving.is_empty() {
            (goal.device.link, goal.device.disk) = (None, None);
        }
        let more = MOVING.iter().filter(|family| family.may(false, true)).filter_map(Moving::default_name);
        goal.moving.extend(more.filter(|name| !self.moving.contains(name)));
        Cow::Owned(goal)
    }

    /// Whether random ops of `graph` may run again.
    pub(crate) fn replays(&self, graph: &Graph) -> bool {
        self.replays_random.unwrap_or(graph.replays_random())
    }

    /// The same goal with every op run once.
    #[must_use]
    pub fn without_recomputation(self) -> Goal {
        let runs_once = |name: &String| moving(name).is_none_or(|(family, _)| !family.recomputes);
        let moving = self.moving.iter().filter(|name| runs_once(name)).cloned().collect();
        Goal { recompute: Recomputing::Never, moving, ..self }
    }

    /// The same goal with at most `most` bytes of copies in host memory: 0 moves nothing. Where no strategy is asked for by
    /// name, all that the goal allows is tried.
    #[must_use]
    pub fn with_host_memory(mut self, most: Bytes) -> Goal {
        if most == Bytes::ZERO {
            return Goal { moving: Vec::new(), ..self };
        }
        self.device.host_memory = most;
        self.moving_by_default()
    }

    /// The same goal with at most `most` bytes of copies on the device's disk, 0 for none. Where nothing is said of host memory,
    /// and no strategy is asked for by name, all copies go there.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if the device has no disk: plans can't tell how fast it is.
    pub fn with_disk(mut self, most: Bytes) -> Result<Goal, Failure> {
        if most == Bytes::ZERO {
            self.device.disk = None;
            return Ok(self);
        }
        let Some(disk) = &mut self.device.disk else {
            return Err(Failure::usage(
                format!("`{}` has no disk", self.device.name),
                "a device file says what there is: `disk = { capacity = \"1TB\", link = { out = \"3GB/s\", in = \"3GB/s\", latency = \"15us\" } }`",
            ));
        };
        disk.capacity = most;
        if self.moving.is_empty() {
            self.device.host_memory = Bytes::ZERO;
        }
        Ok(self.moving_by_default())
    }

    /// The same goal, which moves by the default of each family it allows, unless strategies are named.
    fn moving_by_default(mut self) -> Goal {
        if self.moving.is_empty() {
            let both = self.recompute == Recomputing::Default;
            let families =
                MOVING.iter().filter(|family| family.may(true, false) && (both || !family.recomputes));
            self.moving = families.filter_map(Moving::default_name).collect();
        }
        self
    }

    /// The same goal with strategies as the command line names them: `order:NAME`, `recompute:NAME`,
    /// `offload:NAME`, `compress:NAME`, `hybrid:NAME`, `place:NAME`; and `budget:live`, which bounds what is live instead of the arena.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] where family or name is unknown; it lists the names that are known.
    pub fn with_strategy(mut self, strategy: &str) -> Result<Goal, Failure> {
        match strategy.split_once(':') {
            Some(("order", name)) => name.clone_into(&mut self.order),
            Some(("recompute", name)) => self.recompute = Recomputing::By(name.to_owned()),
            Some((family, _)) if MOVING.iter().any(|moving| moving.family == family) => {
                self.moving.push(strategy.to_owned());
                // Who asks for one by name wants that one, and both only if he names both.
                if self.recompute == Recomputing::Default {
                    self.recompute = Recomputing::Never;
                }
            }
            Some(("place", name)) => name.clone_into(&mut self.placer),
            Some(("budget", "live")) => self.live = true,
            _ => {
                let message = format!("`{strategy}` is not a strategy");
                return Err(Failure::usage(
                    message,
                    "write `order:NAME`, `recompute:NAME`, `offload:NAME`, `compress:NAME`, `hybrid:NAME` or `place:NAME`; `memfit strategies` lists them",
                ));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_read_and_resolve() {
        let device = memfit_formats::device_toml::preset("H100").unwrap();
        let resolve = |text: &str| text.parse::<Budget>().unwrap().resolve(&device, Bytes(400), Bytes(1000));
        assert_eq!(resolve("60%"), Bytes(600));
        assert_eq!(resolve("floor+50%"), Bytes(700));
        assert_eq!(resolve("floor"), Bytes(400));
        assert_eq!(resolve("1.5 KiB"), Bytes(1536));
        for bad in ["", "%", "-1%", "60", "nan%", "floor-10%", "10%%", "8 GiBs"] {
            assert!(bad.parse::<Budget>().is_err(), "{bad}");
        }
        assert_eq!(resolve("8G"), Bytes(8 << 30));
        assert_eq!(resolve("5m"), Bytes(5 << 20));
        let said = "60".parse::<Budget>().unwrap_err().to_string();
        assert!(said.ends_with("did you mean `60%` or `60GiB`?"), "{said}");
    }
}
