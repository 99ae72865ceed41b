//! Lists that are used again and again, so that an op allocates nothing.

use crate::host::Block;

/// Buffers that are used again and again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) reads: Vec<Block>,
    pub(crate) writes: Vec<Block>,
    pub(crate) victims: Vec<u32>,
    pub(crate) fresh: Vec<u32>,
    pub(crate) queue: Vec<u32>,
}
