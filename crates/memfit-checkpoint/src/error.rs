//! What stands in the way of a checkpoint.

use std::io;

/// Why a checkpoint was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bytes could not be read.
    #[error("can't read: {0}")]
    Read(io::Error),
    /// Bytes could not be written.
    #[error("can't write: {0}")]
    Write(io::Error),
    /// Neither a checkpoint of memfit's nor a safetensors file.
    #[error("this is no checkpoint: {0}")]
    Unknown(String),
    /// Made by another version.
    #[error(
        "this checkpoint has version {found} of the format, and this memfit reads version {}",
        crate::VERSION
    )]
    Version {
        /// The version.
        found: u32,
    },
    /// The list of tensors, or what is around it, is damaged.
    #[error("the list of tensors is damaged: {0}")]
    Index(String),
    /// A tensor is damaged.
    #[error("tensor `{tensor}` is damaged: {why}")]
    Damaged {
        /// Its name.
        tensor: String,
        /// What is wrong with it.
        why: String,
    },
    /// A difference was to be read without what it's the difference to.
    #[error("this holds only what differs from checkpoint `{digest}`, and that is not here")]
    NoBase {
        /// Digest of the base.
        digest: String,
    },
    /// A difference was to be read with another base.
    #[error(
        "tensor `{tensor}` of the base is not the one this was made from; that is in checkpoint `{digest}`"
    )]
    OtherBase {
        /// Name of the tensor.
        tensor: String,
        /// Digest of the right base.
        digest: String,
    },
    /// The base itself can't be read.
    #[error("the base can't be used: {0}")]
    Base(Box<Error>),
    /// The call makes no sense.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// The next step, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Version { .. } => Some("read it with the memfit that wrote it, or a newer one".into()),
            Error::Index(_) | Error::Damaged { .. } => Some("make or fetch it again".into()),
            Error::NoBase { .. } => {
                Some("name the base; if that is a difference too, all of them, the oldest first".into())
            }
            Error::OtherBase { .. } => Some("after a lossy codec the base is what was read back".into()),
            Error::Base(error) => error.hint(),
            _ => None,
        }
    }

    /// This, as said of the base.
    pub(crate) fn of_base(self) -> Error {
        Error::Base(Box::new(self))
    }
}
