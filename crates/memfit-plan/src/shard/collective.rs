//! Collective ops over a ring, and what they take.

use memfit_ir::{Bytes, Nanos, usable_rate};

/// What joins the ranks: each sends to the next, all at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    /// Bytes per second that a rank sends.
    pub bandwidth: f64,
    /// Time of each of the rounds beside that.
    pub latency: Nanos,
}

impl Default for Ring {
    /// A network of 200 Gbit/s, and 5 µs for each round.
    fn default() -> Ring {
        Ring { bandwidth: 25e9, latency: Nanos(5_000) }
    }
}

/// What a rank sends in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that it sends; it receives as many.
    pub sent: Bytes,
    /// Time of all its collective ops, one after another.
    pub time: Nanos,
    /// How many there are.
    pub count: u64,
}

/// A collective op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collective {
    /// All ranks get the sum.
    AllReduce,
    /// Each rank gets its share of the sum.
    ReduceScatter,
    /// All ranks get all shares.
    AllGather,
}

impl Collective {
    pub(super) const ALL: [Collective; 3] =
        [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather];

    /// What it is called in names of ops.
    pub(super) fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
        }
    }

    /// Its kind in a graph.
    pub(super) fn kind(self) -> String {
        format!("memfit.{}", self.name())
    }

    /// What a rank sends for `ranks` shares of `share` bytes, and how long that takes: N − 1 rounds of a share each, twice for a
    /// sum that all get (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
    pub(super) fn price(self, share: Bytes, ranks: u32, ring: &Ring) -> (Bytes, Nanos) {
        let passes = if self == Collective::AllReduce { 2 } else { 1 };
        let rounds = (u64::from(ranks) - 1) * passes;
        let sent = Bytes(share.0.saturating_mul(rounds));
        let wire = Nanos::from_secs_f64(sent.0 as f64 / usable_rate(ring.bandwidth));
        (sent, wire + Nanos(ring.latency.0.saturating_mul(rounds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_sends_all_but_one_share_and_twice_that_for_a_sum() {
        let ring = Ring { bandwidth: 1e9, latency: Nanos(10) };
        let price = |op: Collective, ranks| op.price(Bytes(1000), ranks, &ring);
        assert_eq!(price(Collective::AllGather, 4), (Bytes(3000), Nanos(3030)));
        assert_eq!(price(Collective::ReduceScatter, 4), price(Collective::AllGather, 4));
        assert_eq!(price(Collective::AllReduce, 4), (Bytes(6000), Nanos(6060)));
        assert_eq!(price(Collective::AllReduce, 2), (Bytes(2000), Nanos(2020)));
        // No rate and no size makes a number that is none.
        for bandwidth in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let ring = Ring { bandwidth, latency: Nanos(u64::MAX) };
            assert!(Collective::AllReduce.price(Bytes::MAX, u32::MAX, &ring).0 == Bytes::MAX);
        }
    }
}
