//! How a policy chooses online what goes.

use clap::Args as ClapArgs;
use memfit::engine::evict::{Sample, Sieve};
use memfit::strategies::families::default_of;
use memfit::{Bytes, Failure};

#[derive(Debug, ClapArgs)]
pub(super) struct PolicyArgs {
    /// Policy that chooses what goes
    #[arg(long, default_value = default_of("evict"), value_name = "NAME")]
    pub(super) evictor: String,
    /// Candidates that it looks at for each choice: `all`, about √n of n (`sqrt`), or a number of them, drawn at random by the seed;
    /// `best` keeps an index and looks at few in any case
    #[arg(long, value_name = "all|sqrt|N", default_value = "all")]
    sample: Sample,
    /// Evict no tensor smaller than this size, or than this share of the mean of all candidates, while there are others [default: none]
    #[arg(long, value_name = "SIZE|%", value_parser = small)]
    ignore_below: Option<Small>,
    /// Exponents for `megengine`: of evicted neighbours, bytes and staleness
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', default_value = "1,1,1")]
    exponents: Vec<f64>,
}

/// What counts as small.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Small {
    Below(u64),
    OfMean(f64),
}

fn small(text: &str) -> Result<Small, String> {
    let Some(number) = text.strip_suffix('%') else {
        return text.parse().map(|bytes: Bytes| Small::Below(bytes.0)).map_err(|error| format!("{error}"));
    };
    let percent: f64 = number.trim().parse().map_err(|_| format!("`{number}` is no number"))?;
    if (0.0..=100.0).contains(&percent) {
        Ok(Small::OfMean(percent / 100.0))
    } else {
        Err("a share is from 0 % to 100 %".to_owned())
    }
}

impl PolicyArgs {
    pub(super) fn sieve(&self) -> Sieve {
        let (share_of_mean, minimum) = match self.ignore_below {
            Some(Small::OfMean(share)) => (share, 0),
            Some(Small::Below(bytes)) => (0.0, bytes),
            None => (0.0, 0),
        };
        Sieve { sample: self.sample, share_of_mean, minimum }
    }

    pub(super) fn exponents(&self) -> Result<[f64; 3], Failure> {
        let wrong =
            |_| Failure::usage("`--exponents` are three numbers", "as DTR has them: `--exponents 1,1,1`");
        self.exponents.clone().try_into().map_err(wrong)
    }
}
