//! Time that the process has had on processors, all threads together: what a busy machine does not change.

use std::time::Duration;

/// Since the process began, to a hundredth of a second; `None` where the system doesn't say so in Linux's way.
pub(super) fn time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the process stands in parentheses and may have spaces; 11 fields later, user and system time in ticks,
    // of which there are 100 to a second on every Linux.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(10 * (user + system)))
}
