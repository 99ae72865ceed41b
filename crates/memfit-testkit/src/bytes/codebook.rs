//! Codecs on real bytes: what is encoded is a number in a book of all that was, written over as many bytes as there may be.
//!
//! So every codec can be as small as it is, gives back what it was given where it may be used, and nothing of it where it may not;
//! a byte that is changed on the way is found out. The sizes of rooms leave place for 255 numbers even in one byte, more than a plan
//! of the testkit encodes.

use memfit_ir::{Codec, Need};

use super::kernel::{nothing, signs};

/// One that was encoded.
struct Entry {
    codec: Codec,
    plain: Vec<u8>,
    /// What comes out, if anything does.
    decoded: Option<Vec<u8>>,
}

/// All that was encoded.
#[derive(Default)]
pub(super) struct Codebook(Vec<Entry>);

impl Codebook {
    /// `plain` encoded into `room` bytes. It does not come out again unless the codec may be used `well` and, if it counts on zeros,
    /// all but the first `filled` bytes are such.
    pub(super) fn encode(
        &mut self,
        plain: Vec<u8>,
        codec: Codec,
        well: bool,
        room: usize,
        filled: usize,
    ) -> Vec<u8> {
        let is_sparse = (filled..plain.len()).all(|at| plain[at] == nothing(at));
        let decoded = match codec.keeps() {
            _ if !well || codec.is_variable() && !is_sparse => None,
            Need::Value => Some(plain.clone()),
            Need::Sign | Need::Shape => Some(signs(&plain)),
        };
        let entry = Entry { codec, plain, decoded };
        let is_same = |other: &Entry| {
            (other.codec, &other.plain, &other.decoded) == (codec, &entry.plain, &entry.decoded)
        };
        let number = self.0.iter().position(is_same).unwrap_or_else(|| {
            self.0.push(entry);
            self.0.len() - 1
        });
        code(number, codec, room)
    }

    /// The `size` bytes that `bytes` is the code of; `None` if it is none.
    pub(super) fn decode(&self, bytes: &[u8], codec: Codec, size: usize) -> Option<Vec<u8>> {
        let is_this = |(at, entry): &(usize, &Entry)| {
            entry.codec == codec && entry.plain.len() == size && code(*at, codec, bytes.len()) == bytes
        };
        self.0.iter().enumerate().find(is_this)?.1.decoded.clone()
    }
}

/// Number `number`, counted from 1, over `room` bytes.
fn code(number: usize, codec: Codec, room: usize) -> Vec<u8> {
    let digits = (number as u64 + 1).to_le_bytes();
    let salt = |at: usize| at.to_le_bytes()[0].wrapping_mul(37) ^ (codec as u8).wrapping_mul(29) ^ 0xA7;
    (0..room).map(|at| digits[at % digits.len()] ^ salt(at)).collect()
}
