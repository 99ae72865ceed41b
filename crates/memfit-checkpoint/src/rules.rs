//! How tensors are packed: lossless, unless something else is named.

use std::collections::BTreeMap;

use memfit_codec::bounded;

use crate::Error;

/// How a tensor is packed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum How {
    /// To the last bit: the smallest of what is at hand, also as a difference where there's a base.
    #[default]
    Lossless,
    /// `f32` nearer than `bound` to what they were.
    Bounded {
        /// The absolute error.
        bound: f64,
    },
    /// The difference to the base, nearer than `bound` (Delta-DNN). Without a base, as [`How::Bounded`].
    DeltaDnn {
        /// The absolute error.
        bound: f64,
    },
    /// Each number the nearest of a few (k-means), in pieces of [`crate::CHUNK`] bytes.
    Kmeans {
        /// How many, 1 to 256.
        clusters: usize,
    },
    /// Zeros as a mask, the others nearer than `bound` (DeepSZ).
    Deepsz {
        /// The absolute error.
        bound: f64,
    },
}

impl How {
    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match *self {
            How::Lossless => Ok(()),
            How::Bounded { bound } | How::DeltaDnn { bound } | How::Deepsz { bound } => {
                bounded::encode(&[], bound, bounded::Predictor::None)
                    .map(drop)
                    .map_err(|error| Error::Usage(error.to_string()))
            }
            How::Kmeans { clusters: 1..=256 } => Ok(()),
            How::Kmeans { clusters } => Err(Error::Usage(format!("`{clusters}` clusters: write 1 to 256"))),
        }
    }

    /// The bound that errors have, if there is one.
    pub(crate) fn bound(&self) -> Option<f64> {
        match *self {
            How::Bounded { bound } | How::DeltaDnn { bound } | How::Deepsz { bound } => Some(bound),
            How::Lossless | How::Kmeans { .. } => None,
        }
    }
}

/// How each tensor is packed. What loses something is only done to `f32`; all else stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Those that are not named.
    pub others: How,
    /// By name.
    pub named: BTreeMap<String, How>,
}

impl Rules {
    /// All tensors alike.
    #[must_use]
    pub fn all(how: How) -> Rules {
        Rules { others: how, named: BTreeMap::new() }
    }

    pub(crate) fn of(&self, name: &str) -> &How {
        self.named.get(name).unwrap_or(&self.others)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.others.check()?;
        self.named.values().try_for_each(How::check)
    }
}
