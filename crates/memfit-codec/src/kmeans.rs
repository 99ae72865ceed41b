//! Scalar k-means: numbers become one of a few, and a list of which.
//!
//! Source: Gong et al., "Compressing Deep Convolutional Networks using Vector Quantization" (arXiv:1412.6115), and the shared weights
//! of Deep Compression (Han et al., ICLR 2016). Lloyd's algorithm on the sorted numbers, where a cluster is a range, so a round is
//! a binary search for each border and two sums; it starts at quantiles. Deterministic. Time O(n log n), and O(k log n) for
//! each round. Centres are numbers of `f32`; zero stays zero if it's the most frequent number, so what was pruned stays pruned.
//! NaN, infinities and `-0.0` are no part of any cluster: whoever has those keeps them aside ([`nearest`] leaves them).

/// Rounds after which it stops, if it is still not done: it gets no better by much.
const ROUNDS: usize = 100;

/// At most `clusters` centres for the finite numbers of `values`, in ascending order. Fewer where there are fewer numbers.
#[must_use]
pub fn centres(values: &[f32], clusters: usize) -> Vec<f32> {
    let mut sorted: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f32::total_cmp);
    let zeros = sorted.iter().filter(|value| **value == 0.0).count();
    // Pruned weights: zero is a centre of its own.
    if clusters > 1 && zeros * 2 > sorted.len() {
        sorted.retain(|value| *value != 0.0);
        let mut centres = grouped(&sorted, clusters - 1);
        centres.push(0.0);
        centres.sort_unstable_by(f32::total_cmp);
        centres.dedup_by(|a, b| a == b);
        return centres;
    }
    grouped(&sorted, clusters)
}

/// Lloyd's algorithm on numbers in ascending order.
fn grouped(sorted: &[f32], clusters: usize) -> Vec<f32> {
    let mut distinct = Vec::new();
    for &value in sorted {
        if distinct.last() != Some(&value) {
            distinct.push(value);
        }
        if distinct.len() > clusters {
            break;
        }
    }
    if distinct.len() <= clusters || clusters == 0 {
        distinct.truncate(clusters);
        return distinct;
    }
    let sums: Vec<f64> = std::iter::once(0.0)
        .chain(sorted.iter().scan(0.0, |sum, &value| {
            *sum += f64::from(value);
            Some(*sum)
        }))
        .collect();
    let count = sorted.len();
    let mut centres: Vec<f64> =
        (0..clusters).map(|at| f64::from(sorted[(2 * at + 1) * count / (2 * clusters)])).collect();
    centres.dedup_by(|a, b| a == b);
    for _ in 0..ROUNDS {
        let borders = centres.windows(2).map(|pair| pair[0].midpoint(pair[1]));
        let ends = borders.map(|border| sorted.partition_point(|&value| f64::from(value) < border));
        let ends: Vec<usize> = ends.chain([count]).collect();
        let mut start = 0;
        let mut moved = Vec::with_capacity(centres.len());
        for end in ends {
            if end > start {
                moved.push((sums[end] - sums[start]) / (end - start) as f64);
            }
            start = end.max(start);
        }
        moved.dedup_by(|a, b| a == b);
        if moved == centres {
            break;
        }
        centres = moved;
    }
    #[expect(clippy::cast_possible_truncation, reason = "means of numbers of `f32` lie among them")]
    let mut narrow: Vec<f32> = centres.into_iter().map(|centre| centre as f32).collect();
    narrow.sort_unstable_by(f32::total_cmp);
    narrow.dedup_by(|a, b| a == b);
    narrow
}

/// Each of `values` as the nearest of `centres`, which are in ascending order; the lower one of two. What is not finite stays.
pub fn nearest(values: &mut [f32], centres: &[f32]) {
    let borders: Vec<f64> =
        centres.windows(2).map(|pair| f64::from(pair[0]).midpoint(f64::from(pair[1]))).collect();
    for value in values.iter_mut().filter(|value| value.is_finite()) {
        let at = borders.partition_point(|&border| border < f64::from(*value));
        *value = centres.get(at).copied().unwrap_or(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(values: &[f32], centres: &[f32]) -> f64 {
        let mut near = values.to_vec();
        nearest(&mut near, centres);
        values.iter().zip(near).map(|(&x, y)| (f64::from(x) - f64::from(y)).powi(2)).sum()
    }

    #[test]
    fn clusters_that_are_apart_are_found() {
        let values = [1.0, 1.1, 0.9, -5.0, -5.1, 8.0];
        let centres = centres(&values, 3);
        assert_eq!(centres.len(), 3);
        assert!(error(&values, &centres) < 0.03, "{centres:?}");
    }

    #[test]
    fn few_numbers_are_kept_as_they_are() {
        let values = [0.5, -2.0, 0.5, 3.0];
        assert_eq!(centres(&values, 4), [-2.0, 0.5, 3.0]);
        assert_eq!(centres(&[], 4), [] as [f32; 0]);
        assert_eq!(centres(&values, 0), [] as [f32; 0]);
        assert_eq!(centres(&[f32::NAN, f32::INFINITY], 4), [] as [f32; 0]);
        let mut same = [f32::NAN, 1.0];
        nearest(&mut same, &[]);
        assert!(same[0].is_nan() && same[1] == 1.0);
    }

    #[test]
    fn what_was_pruned_stays_pruned() {
        let mut values: Vec<f32> = (0..if cfg!(miri) { 100 } else { 1000i16 })
            .map(|at| f32::from(at % 10) * f32::from(at % 2) * 0.1)
            .collect();
        values.extend([0.0; 200]);
        let centres = centres(&values, 4);
        assert!(centres.contains(&0.0), "{centres:?}");
        let mut near = values.clone();
        nearest(&mut near, &centres);
        assert!(values.iter().zip(near).all(|(&x, y)| x != 0.0 || y == 0.0));
    }

    /// The error falls with the number of clusters, and no border is in the wrong place: every number has its nearest centre.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, of very many values")]
    fn more_clusters_are_nearer() {
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0 - 0.5
        };
        let values: Vec<f32> = (0..5000).map(|_| draw() + draw() * draw()).collect();
        let mut last = f64::INFINITY;
        for clusters in [1, 2, 4, 16, 64, 256] {
            let centres = centres(&values, clusters);
            assert!(centres.len() <= clusters && centres.windows(2).all(|pair| pair[0] < pair[1]));
            let now = error(&values, &centres);
            assert!(now < last, "{clusters}: {now} after {last}");
            last = now;
            let mut near = values.clone();
            nearest(&mut near, &centres);
            for (x, y) in values.iter().zip(near) {
                let best = centres.iter().map(|centre| (x - centre).abs()).fold(f32::INFINITY, f32::min);
                assert!((x - y).abs() <= best, "{x} became {y}");
            }
        }
    }
}
