//! What tensors there are: the header of a safetensors file, kept as it stands there.

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::Error;

/// The longest header, in bytes: as the format has it.
const LONGEST: usize = 100_000_000;

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its type.
    pub dtype: Dtype,
    /// Elements along each dimension.
    pub shape: Vec<usize>,
    /// Bytes it has.
    pub bytes: u64,
}

/// A header: its text, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    text: String,
    tensors: Vec<Tensor>,
    metadata: Vec<(String, String)>,
}

impl Header {
    /// Reads the JSON of a safetensors header.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if it's no such header: tensors must stand side by side, without gaps, in bytes that their type and
    /// shape take.
    pub fn parse(text: String) -> Result<Header, Error> {
        let bad = |why: String| Error::Unknown(format!("a bad safetensors header: {why}"));
        if text.len() > LONGEST {
            return Err(bad(format!("it has {} bytes", text.len())));
        }
        let read: Metadata = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        let mut infos: Vec<_> = read.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
        infos.sort_by(|(a, x), (b, y)| (x.data_offsets, a).cmp(&(y.data_offsets, b)));
        let metadata = read.metadata().clone();
        // This one looks at offsets and sizes.
        let _ = Metadata::new(None, infos.clone()).map_err(|error| bad(error.to_string()))?;
        let tensors = infos.into_iter().map(|(name, info)| {
            let bytes = (info.data_offsets.1 - info.data_offsets.0) as u64;
            Tensor { name, dtype: info.dtype, shape: info.shape, bytes }
        });
        let mut metadata: Vec<_> = metadata.into_iter().flatten().collect();
        metadata.sort();
        Ok(Header { text, tensors: tensors.collect(), metadata })
    }

    /// A header for `tensors`, with offsets in their order, padded to a multiple of eight bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if two have one name, or a size is not that of type and shape.
    pub fn of(tensors: &[Tensor], metadata: &[(String, String)]) -> Result<Header, Error> {
        let mut object = serde_json::Map::new();
        if !metadata.is_empty() {
            let pairs = metadata.iter().map(|(key, value)| (key.clone(), value.clone().into()));
            object.insert("__metadata__".into(), serde_json::Value::Object(pairs.collect()));
        }
        let mut at = 0u64;
        for tensor in tensors {
            let until = at.checked_add(tensor.bytes).ok_or_else(|| Error::Usage("too many bytes".into()))?;
            let info = serde_json::json!({
                "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, until]
            });
            if tensor.name == "__metadata__" || object.insert(tensor.name.clone(), info).is_some() {
                return Err(Error::Usage(format!("`{}` can't be the name of a tensor here", tensor.name)));
            }
            at = until;
        }
        let mut text = serde_json::Value::Object(object).to_string();
        text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
        let header = Header::parse(text).map_err(|error| Error::Usage(error.to_string()))?;
        Ok(header)
    }

    /// The JSON, to the byte.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tensors, in the order of their bytes.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// What else is said, by key.
    #[must_use]
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }
}
