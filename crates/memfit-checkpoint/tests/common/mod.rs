//! Safetensors files by hand, and numbers by chance.
#![allow(dead_code, reason = "each test binary uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Map, Value, json};

/// splitmix64.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let bits = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[7]
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits() % end as u64).unwrap()
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 16_777_216.0
    }
}

/// Normally distributed numbers, as weights are.
pub(crate) fn weights(draw: &mut Draw, count: usize) -> Vec<f32> {
    (0..count).map(|_| ((0..12).map(|_| draw.unit()).sum::<f32>() - 6.0) * 0.02).collect()
}

pub(crate) fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect()
}

/// The last tensor of a file whose only numbers are `f32`.
pub(crate) fn floats(file: &[u8]) -> Vec<f32> {
    let length = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    file[8 + length..].as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// A safetensors file: name, type, shape and bytes of each tensor; metadata, if not null; what stands after the header.
pub(crate) fn file(tensors: &[(&str, &str, &[usize], &[u8])], metadata: Value, after: &str) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert((*name).into(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        data.extend_from_slice(bytes);
    }
    if !metadata.is_null() {
        header.insert("__metadata__".into(), metadata);
    }
    let text = Value::Object(header).to_string() + after;
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat()
}
