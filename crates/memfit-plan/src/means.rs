//! What makes a step fit: runs again, other memory, codecs.

/// Which means schedulers use, or may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Ops run again.
    pub recompute: bool,
    /// Values wait in other memory than the device's.
    pub offload: bool,
    /// Values wait encoded.
    pub compress: bool,
}

impl Means {
    /// None of them.
    pub const NONE: Means = Means { recompute: false, offload: false, compress: false };
    /// All of them.
    pub const ALL: Means = Means { recompute: true, offload: true, compress: true };

    /// Whether values wait elsewhere or encoded.
    #[must_use]
    pub fn moves(self) -> bool {
        self.offload || self.compress
    }

    /// Whether who uses these has what it needs in `allowed`: of the ways in which values may wait, one is enough.
    #[must_use]
    pub fn are_served_by(self, allowed: Means) -> bool {
        let waits = self.offload && allowed.offload || self.compress && allowed.compress;
        (allowed.recompute || !self.recompute) && (waits || !self.moves())
    }

    /// Their names, in this order.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let all = [("recompute", self.recompute), ("offload", self.offload), ("compress", self.compress)];
        all.into_iter().filter(|(_, used)| *used).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_to_wait_is_enough_and_runs_need_leave() {
        let means = |recompute, offload, compress| Means { recompute, offload, compress };
        assert!(Means::ALL.are_served_by(means(true, true, false)));
        assert!(Means::ALL.are_served_by(means(true, false, true)));
        assert!(!Means::ALL.are_served_by(means(true, false, false)));
        assert!(!Means::ALL.are_served_by(means(false, true, true)));
        assert!(!means(false, true, false).are_served_by(means(true, false, true)));
        assert!(Means::NONE.are_served_by(Means::NONE));
    }
}
