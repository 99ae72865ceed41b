//! Fingerprints that tie a plan to its graph.

use std::fmt;
use std::str::FromStr;

/// A BLAKE3 hash of canonical bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Starts a digest of things of the kind `domain`.
    #[must_use]
    pub fn hasher(domain: &str) -> DigestHasher {
        DigestHasher(blake3::Hasher::new_derive_key(domain))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blake3:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: `blake3:` and 64 hexadecimal digits are expected")]
pub struct BadDigest(String);

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Digest, BadDigest> {
        let bad = || BadDigest(text.to_owned());
        let hex = text.strip_prefix("blake3:").filter(|hex| hex.len() == 64).ok_or_else(bad)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.contains('+')).ok_or_else(bad)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
        }
        Ok(Digest(bytes))
    }
}

/// Feeds a [`Digest`]. Every item is prefixed or of fixed width, so different inputs give different bytes.
#[derive(Clone, Debug)]
pub struct DigestHasher(blake3::Hasher);

impl DigestHasher {
    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
        self
    }

    /// Adds a list of numbers.
    pub fn list(&mut self, numbers: impl Iterator<Item = u64>) -> &mut Self {
        let mut count = 0;
        for number in numbers {
            self.number(number);
            count += 1;
        }
        self.number(count)
    }

    /// The digest of all that was added.
    #[must_use]
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn digests_print_and_parse() {
        let digest = Digest::hasher("test").number(7).text("x").finish();
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in ["", "blake3:12", &digest.to_string()[..70], "blake3:é"] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
