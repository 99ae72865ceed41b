//! What the user wants: a budget, where, and how.

use std::fmt;
use std::str::FromStr;

use memfit_ir::{Bytes, Device, Graph};

use crate::Options;

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

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Device memory it may use.
    pub budget: Budget,
    /// Where it runs.
    pub device: Device,
    /// How it is made.
    pub options: Options,
}

impl Goal {
    /// The default means on `device`.
    #[must_use]
    pub fn new(device: Device, budget: Budget) -> Goal {
        Goal { budget, device, options: Options::default() }
    }

    /// The same goal by one more strategy, `family:name`: see [`Options::strategies`].
    #[must_use]
    pub fn with_strategy(mut self, name: &str) -> Goal {
        self.options.strategies.push(name.to_owned());
        self
    }

    /// The same goal with so much work for searches.
    pub(crate) fn with_effort(&self, effort: u32) -> Goal {
        Goal { options: Options { effort, ..self.options.clone() }, ..self.clone() }
    }

    /// The same, with nothing lost.
    pub(crate) fn lossless(&self) -> Goal {
        Goal { options: Options { lossy: Vec::new(), ..self.options.clone() }, ..self.clone() }
    }

    /// Whether random ops of `graph` may run again.
    pub(crate) fn replays(&self, graph: &Graph) -> bool {
        self.options.replays_random.unwrap_or(graph.replays_random())
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
