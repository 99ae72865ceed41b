//! What makes a gap worth choosing, as the field has it; the papers are those of `choose.rs`.

use super::gaps::Gap;

/// What makes a gap worth choosing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Score {
    /// Time above the budget that it covers, for each ns on the link; less where the gap is too short for its transfers.
    Pressure,
    /// Bytes times time.
    Area,
    /// Time.
    Duration,
    /// Bytes.
    Size,
}

/// All of them.
pub(super) const SCORES: [Score; 4] = [Score::Pressure, Score::Area, Score::Duration, Score::Size];

impl Score {
    /// What `gap` is worth, of which so many ns lie above the budget.
    pub(super) fn rate(self, gap: &Gap, above: u64, begins: &[u64]) -> f64 {
        let away = (begins[gap.to] - begins[gap.from + 1]).max(1) as f64;
        let transfer = gap.out.saturating_add(gap.back).max(1) as f64;
        match self {
            Score::Pressure => above as f64 * gap.size as f64 / transfer * (away / transfer).min(1.0),
            Score::Area => gap.size as f64 * away,
            Score::Duration => away,
            Score::Size => gap.size as f64,
        }
    }
}
