//! Steps and links of several kinds, by a seed.

use memfit_ir::{Graph, Link, Nanos};

use crate::{Layered, layered, trained};

/// Layers forward and backward with what lasts, or any graph, of which every third has sparse values.
#[must_use]
pub fn mixed(seed: u64) -> Graph {
    let below = |end: u64| usize::try_from(seed % end).unwrap_or_default();
    match seed % 2 {
        0 => trained(2 + below(23) % 4, 8192, seed),
        _ => {
            let (ops, sparse) = (5 + below(23), below(3));
            layered(Layered { ops, edges: ops * 2, layers: ops / 2, skips: 60, unit: 64, sparse }, seed)
        }
    }
}

/// Slow, so that not all that could wait elsewhere does, or fast.
#[must_use]
pub fn link(seed: u64) -> Link {
    let rate = [4e8, 2e9, 1e10][usize::try_from(seed / 2 % 3).unwrap_or_default()];
    Link {
        out_bandwidth: rate,
        in_bandwidth: rate * 1.5,
        duplex_cap: f64::INFINITY,
        latency: Nanos(100),
        asynchronous: true,
    }
}
