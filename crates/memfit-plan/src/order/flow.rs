//! Maximum flow, for minimum cuts of a graph's values.
//!
//! Source: Dinitz, "Algorithm for solution of a problem of maximum flow in a network with power estimation"
//! (Soviet Math. Dokl. 11, 1970): shortest augmenting paths, phase by phase. No recursion. O(n² m) at worst,
//! near linear for each phase on the networks that occur here.

/// More than any sum of sizes.
pub(super) const ENDLESS: i64 = i64::MAX / 4;

/// A network in which flow goes from node 0 to node 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// Each edge stands beside its reverse: `e ^ 1`.
    to: Vec<u32>,
    room: Vec<i64>,
    ends: Vec<(u32, u32)>,
}

impl Network {
    /// Adds an edge that lets `forth` flow from `from` to `to`, and `back` flow back.
    pub(super) fn edge(&mut self, from: u32, to: u32, forth: i64, back: i64) {
        self.ends.push((from, to));
        self.to.extend([to, from]);
        self.room.extend([forth, back]);
    }

    /// Lets as much flow as can among `nodes` nodes, and gives the smallest set of nodes on the side of node
    /// 0 of a minimum cut. `None` if that takes more than `effort` visits of edges.
    pub(super) fn cut(mut self, nodes: usize, effort: usize) -> Option<(i64, Vec<bool>)> {
        let (starts, edges) = self.rows(nodes);
        let (mut flow, mut visits) = (0i64, 0usize);
        loop {
            let distance = self.distances(&starts, &edges, &mut visits);
            if distance[0] == u32::MAX {
                break;
            }
            if visits > effort {
                return None;
            }
            let mut next = starts.clone();
            let mut path: Vec<usize> = Vec::new();
            loop {
                let node = path.last().map_or(0, |&edge| self.to[edge] as usize);
                if node == 1 {
                    let most = path.iter().map(|&edge| self.room[edge]).min().unwrap_or(0);
                    flow += most;
                    let mut full = path.len();
                    for (at, &edge) in path.iter().enumerate().rev() {
                        self.room[edge] -= most;
                        self.room[edge ^ 1] += most;
                        if self.room[edge] == 0 {
                            full = at;
                        }
                    }
                    visits += path.len();
                    path.truncate(full);
                    continue;
                }
                let onward = edges[next[node]..starts[node + 1]].iter().position(|&edge| {
                    self.room[edge] > 0 && distance[self.to[edge] as usize].wrapping_add(1) == distance[node]
                });
                match onward {
                    Some(skipped) => {
                        visits += skipped + 1;
                        next[node] += skipped;
                        path.push(edges[next[node]]);
                    }
                    None => {
                        visits += starts[node + 1] - next[node];
                        next[node] = starts[node + 1];
                        match path.pop() {
                            Some(edge) => next[self.to[edge ^ 1] as usize] += 1,
                            None => break,
                        }
                    }
                }
            }
            if visits > effort {
                return None;
            }
        }
        let mut side = vec![false; nodes];
        let mut open = vec![0u32];
        side[0] = true;
        while let Some(node) = open.pop() {
            for &edge in &edges[starts[node as usize]..starts[node as usize + 1]] {
                let after = self.to[edge] as usize;
                if self.room[edge] > 0 && !side[after] {
                    side[after] = true;
                    open.push(self.to[edge]);
                }
            }
        }
        Some((flow, side))
    }

    /// By node, where its row of edges begins and ends, and the rows.
    fn rows(&self, nodes: usize) -> (Vec<usize>, Vec<usize>) {
        let mut starts = vec![0usize; nodes + 1];
        for &(from, to) in &self.ends {
            starts[from as usize + 1] += 1;
            starts[to as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut edges = vec![0usize; 2 * self.ends.len()];
        let mut fill = starts.clone();
        for (at, &(from, to)) in self.ends.iter().enumerate() {
            edges[fill[from as usize]] = 2 * at;
            fill[from as usize] += 1;
            edges[fill[to as usize]] = 2 * at + 1;
            fill[to as usize] += 1;
        }
        (starts, edges)
    }

    /// Distances to node 1, so that a search from node 0 runs into few dead ends.
    fn distances(&self, starts: &[usize], edges: &[usize], visits: &mut usize) -> Vec<u32> {
        let mut distance = vec![u32::MAX; starts.len() - 1];
        let mut queue = vec![1u32];
        distance[1] = 0;
        let mut head = 0;
        while let Some(&node) = queue.get(head) {
            head += 1;
            for &edge in &edges[starts[node as usize]..starts[node as usize + 1]] {
                *visits += 1;
                let before = self.to[edge];
                if self.room[edge ^ 1] > 0 && distance[before as usize] == u32::MAX {
                    distance[before as usize] = distance[node as usize] + 1;
                    queue.push(before);
                }
            }
        }
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::{ENDLESS, Network};

    #[test]
    fn the_cut_equals_the_least_over_all_sides() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        for round in 0..500 {
            let nodes = 2 + below(8);
            let mut network = Network::default();
            let mut edges = Vec::new();
            for _ in 0..below(30) {
                let (from, to) = (below(nodes), below(nodes));
                let room = if below(5) == 0 { ENDLESS } else { i64::try_from(below(20)).unwrap() };
                if from != to {
                    network.edge(u32::try_from(from).unwrap(), u32::try_from(to).unwrap(), room, 0);
                    edges.push((from, to, room));
                }
            }
            let crossing = |side: u64| {
                let cut = edges.iter().filter(|(from, to, _)| side >> from & 1 == 1 && side >> to & 1 == 0);
                cut.fold(0i64, |sum, edge| sum.saturating_add(edge.2))
            };
            let least = (0..1u64 << nodes).filter(|side| side & 3 == 1).map(crossing).min().unwrap();
            if least < ENDLESS {
                let (flow, side) = network.cut(usize::try_from(nodes).unwrap(), usize::MAX).unwrap();
                let side = (0..).zip(side).fold(0, |all, (node, inside)| all | u64::from(inside) << node);
                assert_eq!((flow, crossing(side)), (least, least), "round {round}");
            }
        }
    }
}
