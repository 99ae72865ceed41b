//! Tensors in a file: safetensors, and the `.npy` of NumPy.
//!
//! What is in a file is lent, not copied. A file that says more than it holds is refused: safetensors by its own crate, whose header
//! is at most 100 MB; `.npy` of versions 1 to 3 here, with plain types alone (no records, no objects).

use safetensors::SafeTensors;

use crate::FormatError;

/// A tensor as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor<'a> {
    /// Its name; empty in a file of one tensor that has none.
    pub name: String,
    /// The type of an element, as the file calls it: `F32`, `<f4`.
    pub dtype: String,
    /// Whether elements are `f32`, the lowest byte first.
    pub is_f32: bool,
    /// Elements by dimension.
    pub shape: Vec<usize>,
    /// All bytes, in the order of the file.
    pub bytes: &'a [u8],
}

/// How `.npy` files begin.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of a `.npy` header that are read.
const MOST: usize = 1 << 16;

/// The tensors in `bytes`: `.npy` if it begins so, safetensors else; by name.
///
/// # Errors
///
/// [`FormatError`] if it is neither, or says more than it holds.
pub fn read(bytes: &[u8]) -> Result<Vec<Tensor<'_>>, FormatError> {
    if let Some(rest) = bytes.strip_prefix(MAGIC) {
        return Ok(vec![npy(rest)?]);
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| {
        let what = format!("is neither a safetensors file nor an `.npy` file: {error}");
        FormatError::new("", what)
    })?;
    let mut tensors: Vec<Tensor<'_>> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| Tensor {
            name,
            dtype: format!("{:?}", view.dtype()),
            is_f32: view.dtype() == safetensors::Dtype::F32,
            shape: view.shape().to_vec(),
            bytes: view.data(),
        })
        .collect();
    tensors.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tensors)
}

/// The tensor after the magic number.
fn npy(bytes: &[u8]) -> Result<Tensor<'_>, FormatError> {
    let wrong = |what: &str| FormatError::new("header", what.to_owned());
    let cut = || wrong("ends before its length says");
    let ([major, _], rest) = bytes.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(size, rest)| (usize::from(u16::from_le_bytes(*size)), rest)),
        2 | 3 => rest
            .split_first_chunk()
            .map(|(size, rest)| (usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX), rest)),
        _ => return Err(wrong(&format!("has version `{major}`, and 1 to 3 are known"))),
    }
    .ok_or_else(cut)?;
    if length > MOST {
        return Err(wrong(&format!("has `{length}` bytes, more than `{MOST}`")));
    }
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| wrong("is not text"))?;
    let dtype = entry(header, "descr").and_then(quoted);
    let dtype = dtype.ok_or_else(|| wrong("names no plain type: records and objects can't be read"))?;
    let shape = entry(header, "shape").and_then(numbers).ok_or_else(|| wrong("has no shape"))?;
    let size = size_of(dtype).ok_or_else(|| {
        wrong(&format!("has the type `{dtype}`, of which it is not known how many bytes it takes"))
    })?;
    let bytes = shape.iter().try_fold(size, |all, dim| all.checked_mul(*dim));
    if bytes != Some(data.len()) {
        let what = format!("says {shape:?} of `{dtype}`, and there are `{}` bytes", data.len());
        return Err(FormatError::new("header", what));
    }
    Ok(Tensor { name: String::new(), dtype: dtype.to_owned(), is_f32: dtype == "<f4", shape, bytes: data })
}

/// What stands after the colon of `key` in a dictionary of Python.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    ['\'', '"'].into_iter().find_map(|quote| {
        let (_, rest) = header.split_once(&format!("{quote}{key}{quote}"))?;
        rest.trim_start().strip_prefix(':').map(str::trim_start)
    })
}

/// The text that `rest` begins with.
fn quoted(rest: &str) -> Option<&str> {
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    rest.get(1..)?.split_once(quote).map(|(text, _)| text)
}

/// The tuple of numbers that `rest` begins with.
fn numbers(rest: &str) -> Option<Vec<usize>> {
    let (inner, _) = rest.strip_prefix('(')?.split_once(')')?;
    let parts = inner.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(|part| part.trim_end_matches('L').parse().ok()).collect()
}

/// Bytes of an element of a type such as `<f4`.
fn size_of(dtype: &str) -> Option<usize> {
    let kind = dtype.strip_prefix(['<', '>', '|', '=']).unwrap_or(dtype);
    let size = kind.strip_prefix(['b', 'i', 'u', 'f', 'c', 'V', 'S'])?;
    size.parse().ok().filter(|size| (1..=1024).contains(size))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [MAGIC, &[version, 0], length, header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_are_read() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";
        for version in 1..=3 {
            let bytes = file(version, header, &[7; 24]);
            let tensors = read(&bytes).unwrap();
            assert_eq!((tensors[0].shape.as_slice(), tensors[0].bytes), (&[2, 3][..], &[7; 24][..]));
            assert!(tensors[0].is_f32 && tensors[0].dtype == "<f4");
        }
        let scalar = file(1, "{\"descr\": \">f8\", \"fortran_order\": True, \"shape\": ()}", &[1; 8]);
        let tensors = read(&scalar).unwrap();
        assert!(tensors[0].shape.is_empty() && !tensors[0].is_f32);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let header = |descr: &str, shape: &str| format!("{{'descr': {descr}, 'shape': {shape}}}");
        let cases = [
            (file(4, "", &[]), "header: has version `4`"),
            (
                file(1, &header("'<f4'", "(2,)"), &[0; 7]),
                "header: says [2] of `<f4`, and there are `7` bytes",
            ),
            (file(1, &header("'<f4'", "(9999999999, 9999999999)"), &[]), "header: says [9999999999"),
            (file(1, &header("[('a', '<f4')]", "(2,)"), &[]), "header: names no plain type"),
            (file(1, &header("'|O'", "(2,)"), &[]), "header: has the type `|O`"),
            (file(1, &header("'<f4'", "(-1,)"), &[]), "header: has no shape"),
            (file(2, &" ".repeat(70_000), &[]), "header: has `70000` bytes, more than"),
            (file(1, "{'descr'", &[])[..12].to_vec(), "header: ends before"),
            (b"nothing".to_vec(), "is neither a safetensors file nor an `.npy` file"),
            (Vec::new(), "is neither"),
        ];
        for (bytes, expected) in cases {
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn safetensors_are_read_by_name() {
        let header = br#"{"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), &header[..], &[1; 16]].concat();
        let tensors = read(&bytes).unwrap();
        let seen: Vec<_> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.is_f32)).collect();
        assert_eq!(seen, [("a", false), ("b", true)]);
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
    }
}
