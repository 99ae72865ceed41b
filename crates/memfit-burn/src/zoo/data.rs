//! Data that is made up and can be learnt: the same on every backend, from a seed.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Shape, Tensor, TensorData};

/// A small generator of its own: what it gives depends on nothing else.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// One that starts at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_add(0x9E37_79B9_7F4A_7C15))
    }

    /// The next 64 bits (SplitMix64).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// A number in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// What a step learns from.
#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    /// Images, `[batch, 3, size, size]`; nothing for text.
    pub images: Option<Tensor<B, 4>>,
    /// Tokens, `[batch, length]`; nothing for images.
    pub tokens: Option<Tensor<B, 2, Int>>,
    /// Classes: one for each image, pixel or token, in their order.
    pub targets: Tensor<B, 1, Int>,
}

fn ints<B: Backend, const D: usize>(
    values: Vec<i32>,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Int> {
    Tensor::from_data(TensorData::new(values, Shape::from(shape)), device)
}

/// Pictures of `classes` patterns of waves, with noise.
pub(crate) fn waves<B: Backend>(
    noise: &mut Noise,
    batch: usize,
    size: usize,
    classes: usize,
    device: &B::Device,
) -> Batch<B> {
    let mut pixels = Vec::with_capacity(batch * 3 * size * size);
    let mut targets = Vec::with_capacity(batch);
    for _ in 0..batch {
        let class = noise.below(classes);
        targets.push(i32::try_from(class).unwrap_or(0));
        let pitch = (1 + class) as f32 * 0.25;
        for channel in 0..3 {
            for y in 0..size {
                for x in 0..size {
                    let along = if (class + channel).is_multiple_of(2) { x } else { y } as f32;
                    pixels.push((along * pitch).sin() + 0.3 * noise.unit());
                }
            }
        }
    }
    let shape = Shape::from([batch, 3, size, size]);
    let images = Some(Tensor::from_data(TensorData::new(pixels, shape), device));
    Batch { images, tokens: None, targets: ints(targets, [batch], device) }
}

/// Pictures of a disc, and for each pixel whether it is on it.
pub(crate) fn discs<B: Backend>(
    noise: &mut Noise,
    batch: usize,
    size: usize,
    device: &B::Device,
) -> Batch<B> {
    let mut pixels = Vec::with_capacity(batch * 3 * size * size);
    let mut targets = Vec::with_capacity(batch * size * size);
    for _ in 0..batch {
        let (cx, cy) = (noise.below(size), noise.below(size));
        let radius = size / 8 + noise.below(size / 4);
        let on = |x: usize, y: usize| x.abs_diff(cx).pow(2) + y.abs_diff(cy).pow(2) <= radius * radius;
        for _ in 0..3 {
            for y in 0..size {
                for x in 0..size {
                    pixels.push(if on(x, y) { 1.0 } else { -1.0 } + 0.5 * noise.unit());
                }
            }
        }
        targets.extend((0..size * size).map(|at| i32::from(on(at % size, at / size))));
    }
    let shape = Shape::from([batch, 3, size, size]);
    let images = Some(Tensor::from_data(TensorData::new(pixels, shape), device));
    Batch { images, tokens: None, targets: ints(targets, [batch * size * size], device) }
}

/// Sequences that count up, in steps of 1 to 4, modulo the size of the vocabulary; the target of a token is the next.
pub(crate) fn counting<B: Backend>(
    noise: &mut Noise,
    batch: usize,
    length: usize,
    words: usize,
    device: &B::Device,
) -> Batch<B> {
    let (mut tokens, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..batch {
        let (start, stride) = (noise.below(words), 1 + noise.below(4));
        let word = |at: usize| i32::try_from((start + at * stride) % words).unwrap_or(0);
        tokens.extend((0..length).map(word));
        targets.extend((1..=length).map(word));
    }
    let tokens = Some(ints(tokens, [batch, length], device));
    Batch { images: None, tokens, targets: ints(targets, [batch * length], device) }
}
