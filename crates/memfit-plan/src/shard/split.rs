//! What a share is: ⌈elements ÷ N⌉ elements, whatever the shape.

use memfit_ir::{Bytes, Dtype, Graph, ValueId};

/// Elements of `size` bytes of `dtype`, and the bytes of one: single bytes where they don't come out even.
fn counted(size: Bytes, dtype: Dtype) -> (u64, u64) {
    let one = dtype.bytes();
    if size.0.is_multiple_of(one) { (size.0 / one, one) } else { (size.0, 1) }
}

/// Elements of `value`.
pub(super) fn elements(graph: &Graph, value: ValueId) -> u64 {
    let value = graph.value(value);
    counted(value.size, value.dtype).0
}

/// One share of `size` bytes.
pub(super) fn share(size: Bytes, dtype: Dtype, ranks: u32) -> Bytes {
    let (elements, one) = counted(size, dtype);
    Bytes(elements.div_ceil(u64::from(ranks)).saturating_mul(one))
}

/// Bytes that all shares have beyond `size`.
pub(super) fn padding(size: Bytes, dtype: Dtype, ranks: u32) -> Bytes {
    let all = share(size, dtype, ranks).0.saturating_mul(u64::from(ranks));
    Bytes(all.saturating_sub(size.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_value_and_one_less_would_not() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::Other, Dtype::C128] {
            for size in (0..200).map(Bytes) {
                for ranks in [2, 3, 7, 8, 64, u32::MAX] {
                    let (one, n) = (counted(size, dtype).1, u64::from(ranks));
                    let part = share(size, dtype, ranks);
                    assert!(part.0 * n >= size.0 && part.0.is_multiple_of(one));
                    assert!(part.0 == 0 || (part.0 - one) * n < size.0, "{size:?} {dtype:?} {ranks}");
                    assert_eq!(padding(size, dtype, ranks).0, part.0 * n - size.0);
                }
            }
        }
    }
}
