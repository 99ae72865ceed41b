//! Quantities that must not be mixed up.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: a size, a capacity, or an offset from the start of a bank.
///
/// Arithmetic on sizes is checked: use [`Bytes::checked_add`] and friends on anything that comes from a
/// file. The `+` operator saturates, so a sum that would wrap compares as larger than every budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// The largest amount; as a budget it means *no limit*.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// The smallest multiple of `align` that is at least `self`, saturating. `align` 0 counts as 1.
    #[must_use]
    pub fn round_up(self, align: Bytes) -> Bytes {
        let align = align.0.max(1);
        match self.0 % align {
            0 => self,
            rest => Bytes(self.0.saturating_add(align - rest)),
        }
    }

    /// Sum, or `None` where it exceeds 64 bits.
    #[must_use]
    pub fn checked_add(self, rhs: Bytes) -> Option<Bytes> {
        self.0.checked_add(rhs.0).map(Bytes)
    }

    /// Product, or `None` where it exceeds 64 bits.
    #[must_use]
    pub fn checked_mul(self, rhs: u64) -> Option<Bytes> {
        self.0.checked_mul(rhs).map(Bytes)
    }

    /// Difference, or zero where `rhs` is larger.
    #[must_use]
    pub fn saturating_sub(self, rhs: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(rhs.0))
    }

    /// `self ÷ of` as a ratio for people and reports; 0 where `of` is zero.
    #[must_use]
    pub fn ratio(self, of: Bytes) -> f64 {
        if of.0 == 0 { 0.0 } else { self.0 as f64 / of.0 as f64 }
    }
}

impl std::ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, rhs: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(rhs.0))
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Bytes) {
        *self = *self + rhs;
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, |sum, bytes| sum + bytes)
    }
}

const BINARY: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
const DECIMAL: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)];

const SHORT: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

impl fmt::Display for Bytes {
    /// Three significant digits in binary units, exact below 1 KiB: `1.62 GiB`, `512 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, one) in BINARY {
            if self.0 >= one {
                let amount = self.0 as f64 / one as f64;
                let decimals = if self.0.is_multiple_of(one) || amount >= 100.0 {
                    0
                } else if amount >= 10.0 {
                    1
                } else {
                    2
                };
                return f.pad(&format!("{amount:.decimals$} {unit}"));
            }
        }
        f.pad(&format!("{} B", self.0))
    }
}

/// A size that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a size: write bytes, or a number with `KiB`, `MiB`, `GiB`, `TiB`, `KB`, `MB`, `GB` or `TB`"
)]
pub struct BadSize(pub String);

impl FromStr for Bytes {
    type Err = BadSize;

    /// Reads `8GiB`, `8G`, `1.5 GB`, `4096`, `4096 B`; units in any case, fractions rounded down to a byte. A unit of one
    /// letter is binary, as in most tools that count memory.
    fn from_str(text: &str) -> Result<Bytes, BadSize> {
        let bad = || BadSize(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = (trimmed[..split].trim(), trimmed[split..].trim());
        let one = if unit.is_empty() || unit.eq_ignore_ascii_case("B") {
            1
        } else {
            BINARY
                .iter()
                .chain(&DECIMAL)
                .chain(&SHORT)
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|&(_, one)| one)
                .ok_or_else(bad)?
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(one).map(Bytes).ok_or_else(bad);
        }
        if !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(bad());
        }
        let amount = number.parse::<f64>().map_err(|_| bad())? * one as f64;
        // 2^63 is far above any memory and still exact as a float.
        if !amount.is_finite() || amount >= 9.2e18 {
            return Err(bad());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked above")]
        Ok(Bytes(amount as u64))
    }
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time.
    pub const ZERO: Nanos = Nanos(0);

    /// From seconds; negative, NaN and overflowing amounts become zero and the maximum.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Nanos {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        Nanos((seconds * 1e9).round() as u64)
    }

    /// In seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Duration> for Nanos {
    /// What does not fit becomes the maximum.
    fn from(duration: Duration) -> Nanos {
        Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl std::ops::Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(iter: I) -> Nanos {
        iter.fold(Nanos::ZERO, |sum, nanos| sum + nanos)
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits: `12.3 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (amount, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "µs"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let decimals = if amount >= 100.0 {
            0
        } else if amount >= 10.0 {
            1
        } else {
            2
        };
        f.pad(&format!("{amount:.decimals$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8GiB", 8 << 30),
            ("1.5 KB", 1500),
            ("2mib", 2 << 20),
            ("7 B", 7),
            ("8G", 8 << 30),
            ("1.5k", 1536),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "1e3", "1.5.2", "8 GiBs", "99999999999 TiB", "NaN", "inf", "½ MiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(Bytes(1 << 30).to_string(), "1 GiB");
        assert_eq!(Bytes(1_739_461_755).to_string(), "1.62 GiB");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
    }

    #[test]
    fn rounding_saturates_instead_of_wrapping() {
        assert_eq!(Bytes(5).round_up(Bytes(4)), Bytes(8));
        assert_eq!(Bytes(u64::MAX - 1).round_up(Bytes(512)), Bytes::MAX);
        assert_eq!(Bytes(5).round_up(Bytes(0)), Bytes(5));
    }
}
