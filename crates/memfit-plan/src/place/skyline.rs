//! The top of what is placed, section by section: the largest of a stretch, and raising a stretch.

/// A segment tree whose marks stay where they are set. Both operations take O(log n).
#[derive(Clone, Debug)]
pub(crate) struct Skyline {
    /// For each node the largest below it, and what its whole stretch has been raised to.
    nodes: Vec<(u64, u64)>,
    leaves: usize,
}

impl Skyline {
    /// All 0.
    pub(crate) fn new(sections: usize) -> Skyline {
        let leaves = sections.max(1).next_power_of_two();
        Skyline { nodes: vec![(0, 0); leaves * 2], leaves }
    }

    /// The largest of `[lo, hi)`, which is not empty.
    pub(crate) fn top(&self, lo: u32, hi: u32) -> u64 {
        let (mut left, mut right) = (self.leaves + lo as usize, self.leaves + hi as usize);
        let (first, last) = (left, right - 1);
        let mut top = 0;
        while left < right {
            if left & 1 == 1 {
                top = top.max(self.nodes[left].0);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                top = top.max(self.nodes[right].0);
            }
            left /= 2;
            right /= 2;
        }
        for mut node in [first, last] {
            while node > 0 {
                top = top.max(self.nodes[node].1);
                node /= 2;
            }
        }
        top
    }

    /// Raises all of `[lo, hi)`, which is not empty, to `to` at least.
    pub(crate) fn raise(&mut self, lo: u32, hi: u32, to: u64) {
        let (mut left, mut right) = (self.leaves + lo as usize, self.leaves + hi as usize);
        let (first, last) = (left, right - 1);
        while left < right {
            if left & 1 == 1 {
                self.mark(left, to);
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                self.mark(right, to);
            }
            left /= 2;
            right /= 2;
        }
        for mut node in [first, last] {
            while node > 1 {
                node /= 2;
                let most = &mut self.nodes[node].0;
                *most = to.max(*most);
            }
        }
    }

    fn mark(&mut self, node: usize, to: u64) {
        let (most, all) = self.nodes[node];
        self.nodes[node] = (most.max(to), all.max(to));
    }
}

#[cfg(test)]
mod tests {
    use super::Skyline;

    #[test]
    fn matches_a_plain_list() {
        let mut seed = 88_172_645_463_325_252u64;
        for sections in [1u32, 2, 7, 64, 100] {
            let (mut skyline, mut plain) = (Skyline::new(sections as usize), vec![0u64; sections as usize]);
            for _ in 0..500 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let lo = u32::try_from(seed % u64::from(sections)).unwrap();
                let hi = lo + 1 + u32::try_from((seed >> 20) % u64::from(sections - lo)).unwrap();
                let stretch = &mut plain[lo as usize..hi as usize];
                assert_eq!(skyline.top(lo, hi), *stretch.iter().max().unwrap());
                let to = (seed >> 40) % 1000;
                stretch.iter_mut().for_each(|top| *top = to.max(*top));
                skyline.raise(lo, hi, to);
            }
        }
    }
}
