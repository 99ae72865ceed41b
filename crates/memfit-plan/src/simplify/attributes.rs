//! What an op was told beside its operands, as `docs/graph-json.md` writes it: `0=$0:float[2,3];perm=1,0;out0=float[3,2]`.

/// The text of an op's attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a str);

/// A tensor among the arguments: which of the op's reads, how it is seen, and what all its elements are, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tensor<'a> {
    pub(super) read: usize,
    pub(super) seen: &'a str,
    pub(super) all: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// The value of `key`.
    pub(super) fn get(self, key: &str) -> Option<&'a str> {
        self.0
            .split(';')
            .find_map(|item| item.split_once('=').filter(|(name, _)| *name == key))
            .map(|(_, value)| value)
    }

    /// The tensor that argument `key` is.
    pub(super) fn tensor(self, key: &str) -> Option<Tensor<'a>> {
        let (read, seen) = self.get(key)?.strip_prefix('$')?.split_once(':')?;
        let (seen, all) = seen.split_once('=').map_or((seen, None), |(seen, all)| (seen, Some(all)));
        Some(Tensor { read: read.parse().ok()?, seen, all })
    }

    /// How the first output is seen.
    pub(super) fn out(self) -> Option<&'a str> {
        self.get("out0")
    }

    /// The number that argument `key` is, or that all of its elements are.
    pub(super) fn number(self, key: &str) -> Option<f64> {
        let text = match self.tensor(key) {
            Some(tensor) => tensor.all?,
            None => self.get(key)?,
        };
        text.parse().ok()
    }
}

/// `float` and `[2,3]` of `float[2,3]`: the element type, and where the elements are.
pub(super) fn split(seen: &str) -> Option<(&str, &str)> {
    Some(seen.split_at(seen.find('[')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_by_name() {
        let text = Attributes("0=$0:float[2,3];1=$1:float[]=1;2=0.5;out0=float[2,3]");
        assert_eq!(text.tensor("0"), Some(Tensor { read: 0, seen: "float[2,3]", all: None }));
        assert_eq!((text.number("1"), text.number("2"), text.number("0")), (Some(1.0), Some(0.5), None));
        assert_eq!((text.out().and_then(split), text.get("3")), (Some(("float", "[2,3]")), None));
        for bad in ["", "0", "0=$", "0=$x:f[]", "$0:f[]", "blake3:00"] {
            assert_eq!(Attributes(bad).tensor("0"), None, "{bad}");
        }
    }
}
