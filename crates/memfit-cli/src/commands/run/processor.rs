//! Time that the process has had on processors, all threads together: what a busy machine changes least.

use std::time::Duration;

/// Of all threads there are; `None` where the system doesn't say so in Linux's way.
pub(super) fn time() -> Option<Duration> {
    let mut nanos: u64 = 0;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread that has just ended is no error.
        let Ok(text) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}
