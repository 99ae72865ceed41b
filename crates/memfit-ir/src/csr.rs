//! Rows of different length in two flat vectors (compressed sparse rows).

/// A list of lists without an allocation for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csr<T> {
    ends: Vec<usize>,
    items: Vec<T>,
}

impl<T> Default for Csr<T> {
    fn default() -> Self {
        Csr { ends: Vec::new(), items: Vec::new() }
    }
}

impl<T: Copy> Csr<T> {
    /// Appends a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = T>) {
        self.items.extend(row);
        self.ends.push(self.items.len());
    }

    /// Gives back what was allocated for rows to come.
    pub fn shrink_to_fit(&mut self) {
        self.ends.shrink_to_fit();
        self.items.shrink_to_fit();
    }

    /// Row `index`, empty where there is none.
    #[must_use]
    pub fn row(&self, index: usize) -> &[T] {
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.items[start..end]
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Builds `rows` rows from `(row, item)` pairs; items keep the order of the pairs within a row.
    /// Pairs whose row is out of range are left out. Time and space O(rows + pairs).
    pub fn from_pairs(rows: usize, pairs: impl Iterator<Item = (usize, T)> + Clone) -> Csr<T> {
        let mut starts = vec![0usize; rows + 1];
        let mut first = None;
        for (row, item) in pairs.clone() {
            if row < rows {
                starts[row + 1] += 1;
                first.get_or_insert(item);
            }
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let ends = starts[1..].to_vec();
        let Some(fill) = first else { return Csr { ends, items: Vec::new() } };
        let mut items = vec![fill; ends.last().copied().unwrap_or(0)];
        for (row, item) in pairs {
            if row < rows {
                items[starts[row]] = item;
                starts[row] += 1;
            }
        }
        Csr { ends, items }
    }
}

#[cfg(test)]
mod tests {
    use super::Csr;

    #[test]
    fn pairs_become_rows() {
        let csr = Csr::from_pairs(3, [(2, 'a'), (0, 'b'), (2, 'c'), (9, 'x')].into_iter());
        assert_eq!(
            (csr.row(0), csr.row(1), csr.row(2), csr.row(3)),
            (&['b'][..], &[][..], &['a', 'c'][..], &[][..])
        );
        let mut pushed = Csr::default();
        pushed.push(['b']);
        pushed.push([]);
        pushed.push(['a', 'c']);
        assert_eq!(csr, pushed);
    }
}
