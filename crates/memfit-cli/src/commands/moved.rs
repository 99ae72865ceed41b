//! What moving values comes to, in words and in columns.

use memfit::ir::Tier;
use memfit::{Bytes, Nanos, Summary};

/// Bytes moved, where they wait and how many at most, how busy each link is, and what is waited for.
pub(super) fn moved(summary: &Summary) -> String {
    let places: String = used(summary)
        .map(|(tier, most)| {
            let place = if tier == Tier::Disk { "on disk" } else { "in host memory" };
            format!(", {most} {place} at most, {}", busy(summary, tier))
        })
        .collect();
    format!("{} moved{places}, {} waited for", summary.offloaded, summary.stall)
}

/// The tiers that hold something at some time, and the most that they hold.
fn used(summary: &Summary) -> impl Iterator<Item = (Tier, Bytes)> {
    let tiers = [(Tier::Host, summary.host_peak), (Tier::Disk, summary.disk_peak)];
    tiers.into_iter().filter(|(_, most)| *most > Bytes::ZERO)
}

fn busy(summary: &Summary, tier: Tier) -> String {
    let [out, back] = summary.busy(tier).map(|share| share * 100.0);
    format!("its link busy {out:.0} % of the time out and {back:.0} % back")
}

/// Columns of a table, for rows of which at least one moves something.
pub(super) const COLUMNS: [&str; 6] = ["moved", "stall", "host", "host link", "disk", "disk link"];

/// The cells of those columns. A link's are the shares of the time in which it is busy, out and back.
pub(super) fn cells(summary: &Summary) -> [String; 6] {
    let size = |bytes: Bytes| if bytes == Bytes::ZERO { "-".to_owned() } else { bytes.to_string() };
    let link = |tier: Tier| match summary.busy(tier).map(|share| share * 100.0) {
        [0.0, 0.0] => "-".to_owned(),
        [out, back] => format!("{out:.0}, {back:.0} %"),
    };
    let stall = if summary.stall == Nanos::ZERO { "-".to_owned() } else { summary.stall.to_string() };
    let Summary { offloaded, host_peak, disk_peak, .. } = *summary;
    [size(offloaded), stall, size(host_peak), link(Tier::Host), size(disk_peak), link(Tier::Disk)]
}
