//! What a user gives beside the device's memory.

use std::path::PathBuf;

use memfit_ir::Bytes;

/// Memory for copies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Room {
    /// Bytes of host memory.
    pub host: Option<Bytes>,
    /// A part of a disk.
    pub disk: Option<Disk>,
    /// Bytes per second at most on the way to host memory and back: for a machine whose link is slower than this one's memory,
    /// or to see what such a link would do. What is measured here counts where there is none.
    pub link: Option<f64>,
}

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The most bytes.
    pub capacity: Bytes,
    /// Where the file is made, which has no name.
    pub directory: PathBuf,
}
