//! Random numbers that can be drawn again.
//!
//! Flex and NdArray draw from one global stream each that nobody can set back. So memfit draws for them, from the same stream: the
//! generator of `rand`'s `StdRng`, seeded and read as they do it, whose position can be noted and found again. Hence
//! a network with dropout gives the same bits as without memfit, although its masks are drawn anew when they are needed.
//! Other backends get a seed of its own for each random op.

use burn_backend::{DType, Distribution, Shape, TensorData};
use burn_ir::{FloatOperationIr, NumericOperationIr, OperationIr, RandomOpIr};
use burn_std::rand::{SeedableRng, gen_random};
use burn_std::{bf16, f16};
use chacha20::ChaCha12Rng;

/// Bits of a state that count words of the stream; those above are the number of the seed.
const WORDS: u32 = 44;

/// The random op in `op`.
pub(crate) fn random(op: &OperationIr) -> Option<&RandomOpIr> {
    match op {
        OperationIr::Float(_, FloatOperationIr::Random(random))
        | OperationIr::NumericFloat(_, NumericOperationIr::IntRandom(random))
        | OperationIr::NumericInt(_, NumericOperationIr::IntRandom(random)) => Some(random),
        _ => None,
    }
}

/// The stream of a device.
pub(crate) struct Draws {
    /// All seeds so far, in their order.
    seeds: Vec<u64>,
    stream: ChaCha12Rng,
    /// Random ops so far, for seeds of their own.
    drawn: u64,
}

impl Draws {
    /// A stream that starts anywhere, until it's seeded.
    pub(crate) fn new() -> Draws {
        let seed = gen_random::<u64>();
        Draws { seeds: vec![seed], stream: ChaCha12Rng::seed_from_u64(seed), drawn: 0 }
    }

    /// Starts the stream anew.
    pub(crate) fn seed(&mut self, seed: u64) {
        if self.seeds.last() != Some(&seed) {
            self.seeds.push(seed);
        }
        self.stream = ChaCha12Rng::seed_from_u64(seed);
        self.drawn = 0;
    }

    /// Where the stream is; `None` if it can't be noted.
    pub(crate) fn state(&self) -> Option<u64> {
        let seed = u64::try_from(self.seeds.len() - 1).ok()?;
        let word = u64::try_from(self.stream.get_word_pos()).ok()?;
        (word < 1 << WORDS && seed < 1 << (63 - WORDS)).then_some(seed << WORDS | word)
    }

    /// What `op` draws from `how`, at `state` or, without one, where the stream is; then the stream is where it was before or
    /// behind it.
    pub(crate) fn draw(
        &mut self,
        op: &RandomOpIr,
        how: Distribution,
        state: Option<u64>,
    ) -> Option<TensorData> {
        let Some(state) = state else { return data(op, how, &mut self.stream) };
        let seed = *self.seeds.get(usize::try_from(state >> WORDS).ok()?)?;
        let mut stream = ChaCha12Rng::seed_from_u64(seed);
        stream.set_word_pos(u128::from(state & ((1 << WORDS) - 1)));
        data(op, how, &mut stream)
    }

    /// A number for the next random op, and never again.
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.drawn += 1;
        let seed = self.seeds.last().copied().unwrap_or_default();
        (seed ^ self.drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 1
    }
}

/// As Flex and NdArray draw it; `None` for a type that they don't draw.
fn data(op: &RandomOpIr, how: Distribution, rng: &mut ChaCha12Rng) -> Option<TensorData> {
    let shape: Shape = op.out.shape.clone();
    Some(match op.out.dtype {
        DType::F64 => TensorData::random::<f64, _, _>(shape, how, rng),
        DType::F32 | DType::Flex32 => TensorData::random::<f32, _, _>(shape, how, rng),
        DType::F16 => TensorData::random::<f16, _, _>(shape, how, rng),
        DType::BF16 => TensorData::random::<bf16, _, _>(shape, how, rng),
        DType::I64 => TensorData::random::<i64, _, _>(shape, how, rng),
        DType::I32 => TensorData::random::<i32, _, _>(shape, how, rng),
        DType::I16 => TensorData::random::<i16, _, _>(shape, how, rng),
        DType::I8 => TensorData::random::<i8, _, _>(shape, how, rng),
        DType::U64 => TensorData::random::<u64, _, _>(shape, how, rng),
        DType::U32 => TensorData::random::<u32, _, _>(shape, how, rng),
        DType::U16 => TensorData::random::<u16, _, _>(shape, how, rng),
        DType::U8 => TensorData::random::<u8, _, _>(shape, how, rng),
        DType::Bool(_) | DType::QFloat(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use burn_backend::{Backend as _, ops::FloatTensorOps as _};
    use burn_flex::{Flex, FlexDevice};
    use burn_ir::TensorId;

    use super::*;

    #[test]
    fn the_stream_is_that_of_flex_and_can_be_found_again() {
        let op = |elements: usize| {
            RandomOpIr::create([elements].into(), DType::F32, Distribution::Default, || TensorId::new(0))
        };
        let mut draws = Draws::new();
        draws.seed(7);
        Flex::seed(&FlexDevice, 7);
        for elements in [5, 64, 1, 1000] {
            let theirs =
                Flex::float_random([elements].into(), Distribution::Default, &FlexDevice, DType::F32.into());
            let before = draws.state();
            let ours = draws.draw(&op(elements), Distribution::Default, None).unwrap();
            assert_eq!(ours, theirs.into_data());
            let after = draws.state();
            assert_eq!(draws.draw(&op(elements), Distribution::Default, before).unwrap(), ours);
            assert_eq!(draws.state(), after);
        }
    }
}
