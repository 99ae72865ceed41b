//! The best there is, by trying everything.

mod moves;

pub use moves::{best_steps, fastest_moves};

/// The least height at which `items`, each `(from, until, size)` with a half-open lifetime, fit into one bank
/// when every offset is a multiple of `align`.
///
/// Tries every order and puts each item as low as it goes. That is exact: take a best layout and place its
/// items again by ascending offset, each as low as it goes; by induction none ends up higher than it was.
/// Time O(n! · n²): for up to 8 items.
#[must_use]
pub fn least_height(items: &[(u32, u32, u64)], align: u64) -> u64 {
    let mut offsets: Vec<Option<u64>> = vec![None; items.len()];
    extend(items, align.max(1), &mut offsets, 0, u64::MAX)
}

fn extend(
    items: &[(u32, u32, u64)],
    align: u64,
    offsets: &mut Vec<Option<u64>>,
    height: u64,
    best: u64,
) -> u64 {
    if height >= best {
        return best;
    }
    if offsets.iter().all(Option::is_some) {
        return height;
    }
    let mut best = best;
    for item in 0..items.len() {
        if offsets[item].is_none() {
            let offset = lowest(items, align, offsets, item);
            offsets[item] = Some(offset);
            best = best.min(extend(items, align, offsets, height.max(offset + items[item].2), best));
            offsets[item] = None;
        }
    }
    best
}

/// The lowest offset at which `item` meets none of those that have one.
fn lowest(items: &[(u32, u32, u64)], align: u64, offsets: &[Option<u64>], item: usize) -> u64 {
    let (from, until, size) = items[item];
    let mut taken: Vec<(u64, u64)> = items
        .iter()
        .zip(offsets)
        .filter(|((other_from, other_until, _), _)| from < *other_until && *other_from < until)
        .filter_map(|(other, offset)| offset.map(|offset| (offset, offset + other.2)))
        .collect();
    taken.sort_unstable();
    let mut offset = 0u64;
    for (start, end) in taken {
        if start < offset + size && offset < end {
            offset = end.next_multiple_of(align);
        }
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::least_height;

    #[test]
    fn small_problems_have_their_known_heights() {
        assert_eq!(least_height(&[], 1), 0);
        assert_eq!(least_height(&[(0, 2, 5), (2, 4, 7)], 1), 7);
        assert_eq!(least_height(&[(0, 2, 5), (1, 4, 7)], 1), 12);
        assert_eq!(least_height(&[(0, 2, 5), (1, 4, 7)], 16), 21);
        // A staircase that closes over itself: each must lie beside the next.
        assert_eq!(least_height(&[(0, 3, 1), (2, 5, 2), (4, 7, 1), (0, 7, 1)], 1), 4);
    }
}
