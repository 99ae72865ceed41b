//! Devices as TOML: the presets, and files of users. The format is in `docs/devices.md`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use memfit_ir::{Bytes, Codec, Device, Dtype, Link, Nanos, Store};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use crate::FormatError;

/// The longest device file, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A device that memfit knows by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The device.
    pub device: Device,
    /// Where its figures come from.
    pub source: String,
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let text = include_str!("../data/devices.toml");
    parse_presets(text).unwrap_or_else(|error| unreachable!("a test reads the presets: {error}"))
});

/// The devices that memfit knows by name, oldest first and the CPU last.
#[must_use]
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// The preset called `name`, in any case, with or without hyphens, underscores, spaces and the maker's words before it:
/// `a100-80`, `A100 80`, `GeForce RTX 4090`. Its memory may follow where the name leaves it out: `H100-80`,
/// `T4 16GB`.
#[must_use]
pub fn preset(name: &str) -> Option<Device> {
    let wanted = plain(name);
    let bare = ["gib", "gb", "g"].iter().find_map(|unit| wanted.strip_suffix(unit)).unwrap_or(&wanted);
    // A card may be sold by a rounder number than its memory: 16 GB for 15 GiB.
    let is_of = |size: u64, memory: Bytes| {
        let is_near = (size as f64 / (memory.0 as f64 / (1u64 << 30) as f64) - 1.0).abs() < 0.08;
        size == memory.0 >> 30 || is_near && size.is_multiple_of(8)
    };
    let is_sized = |device: &&Device| {
        let name = plain(&device.name);
        let is_whole = bare == name && name.ends_with(&(device.memory.0 >> 30).to_string());
        let size = bare.strip_prefix(name.as_str()).and_then(|size| size.parse().ok());
        is_whole || size.is_some_and(|size| is_of(size, device.memory))
    };
    let devices = || presets().iter().map(|preset| &preset.device);
    devices().find(|device| plain(&device.name) == wanted).or_else(|| devices().find(is_sized)).cloned()
}

/// What of a device's name tells it from others.
fn plain(name: &str) -> String {
    let kept = name.chars().filter(|c| !matches!(c, '-' | '_' | ' '));
    let whole: String = kept.map(|c| c.to_ascii_lowercase()).collect();
    let mut rest = whole.as_str();
    for word in ["nvidia", "geforce", "tesla", "rtx", "gtx"] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.to_owned()
}

/// The largest alignment: rounded up to it, no sum of sizes that a graph may have is beyond measure.
const MOST_ALIGN: u64 = 1 << 40;

/// Reads a device file.
///
/// # Errors
///
/// If it is not TOML, a key is unknown or missing, a figure has the wrong unit, is not finite or not positive, or the
/// alignment is not a power of two. The error names the key, and the line where it is known.
pub fn read(text: &str) -> Result<Device, FormatError> {
    if text.len() > MAX_BYTES {
        return Err(FormatError::new("", format!("a device file of more than {MAX_BYTES} bytes")));
    }
    let device: DeviceToml = toml::from_str(text).map_err(|error| refuse(text, &error))?;
    device.check().map(|preset| preset.device)
}

fn parse_presets(text: &str) -> Result<Vec<Preset>, FormatError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        device: Vec<DeviceToml>,
    }
    let file: File = toml::from_str(text).map_err(|error| refuse(text, &error))?;
    file.device.into_iter().map(DeviceToml::check).collect()
}

fn refuse(text: &str, error: &toml::de::Error) -> FormatError {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    let message: String = error.message().trim().replace('\n', ", ").chars().take(1000).collect();
    FormatError::new(line.map_or_else(String::new, |line| format!("line {line}")), message)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceToml {
    name: String,
    memory: Size,
    align: Size,
    flops: BTreeMap<String, Rate>,
    bandwidth: Rate,
    #[serde(default)]
    efficiency: Efficiency,
    launch: Time,
    copy: Option<Rate>,
    #[serde(default)]
    codecs: BTreeMap<String, CodecToml>,
    link: Option<LinkToml>,
    #[serde(default)]
    host_memory: Option<Size>,
    disk: Option<DiskToml>,
    #[serde(default)]
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Efficiency {
    compute: f64,
    memory: f64,
}

impl Default for Efficiency {
    fn default() -> Efficiency {
        Efficiency { compute: 0.6, memory: 0.8 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodecToml {
    encode: Rate,
    decode: Rate,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkToml {
    out: Rate,
    #[serde(rename = "in")]
    inward: Rate,
    duplex: Option<Rate>,
    latency: Time,
    #[serde(default = "yes")]
    asynchronous: bool,
}

/// What a flag is that is not there.
const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskToml {
    capacity: Size,
    link: LinkToml,
}

impl DeviceToml {
    fn check(self) -> Result<Preset, FormatError> {
        let refuse = |key: &str, message: &str| Err(FormatError::new(key, message));
        if self.name.is_empty() || self.name.len() > 200 || self.name.chars().any(char::is_control) {
            return refuse("name", "a name of 1 to 200 bytes without control characters is expected");
        }
        let memory = self.memory.positive("memory")?;
        let align = self.align.positive("align")?;
        if align.0 > MOST_ALIGN {
            return refuse("align", &format!("`{}` bytes are more than {MOST_ALIGN}", align.0));
        }
        if !align.0.is_power_of_two() {
            return refuse("align", &format!("`{}` bytes are not a power of two", align.0));
        }
        let mut flops = Vec::new();
        for (name, rate) in &self.flops {
            let Some(dtype) = Dtype::by_name(name) else {
                let known: Vec<&str> = Dtype::ALL.iter().map(|(_, name)| *name).collect();
                let name: String = name.chars().take(100).collect();
                let message = format!("there is no dtype `{name}`: the dtypes are `{}`", known.join("`, `"));
                return Err(FormatError::new("flops", message));
            };
            flops.push((dtype, rate.of("FLOP/s", &format!("flops.{name}"))?));
        }
        flops.sort_by_key(|&(dtype, _)| dtype);
        if !flops.iter().any(|&(dtype, _)| dtype == Dtype::F32) {
            return refuse("flops", "`f32` is missing: it stands for every dtype that is not listed");
        }
        let mut codecs = Vec::new();
        for (name, rates) in &self.codecs {
            let Some(codec) = Codec::by_name(name) else {
                let known: Vec<&str> = Codec::ALL.iter().map(|(_, name)| *name).collect();
                let name: String = name.chars().take(100).collect();
                let message = format!("there is no codec `{name}`: the codecs are `{}`", known.join("`, `"));
                return Err(FormatError::new("codecs", message));
            };
            let rate = |rate: &Rate, key: &str| rate.of("B/s", &format!("codecs.{name}.{key}"));
            codecs.push((codec, rate(&rates.encode, "encode")?, rate(&rates.decode, "decode")?));
        }
        let share = |key: &str, share: f64| match share > 0.0 && share <= 1.0 {
            true => Ok(share),
            false => Err(FormatError::new(key, format!("`{share}` is not above 0 and at most 1"))),
        };
        let compute = share("efficiency.compute", self.efficiency.compute)?;
        let memory_share = share("efficiency.memory", self.efficiency.memory)?;
        let link = self.link.map(|link| link.check("link")).transpose()?;
        if link.is_none() && self.host_memory.is_some() {
            return refuse("host_memory", "there is no `link` to host memory");
        }
        let host_memory = match &self.host_memory {
            Some(size) => size.positive("host_memory")?,
            None => Bytes::ZERO,
        };
        Ok(Preset {
            device: Device {
                name: self.name,
                memory,
                align,
                flops,
                bandwidth: self.bandwidth.of("B/s", "bandwidth")?,
                efficiency: (compute, memory_share),
                launch: self.launch.positive("launch")?,
                copy: self.copy.map(|rate| rate.of("B/s", "copy")).transpose()?,
                codecs,
                link,
                host_memory,
                disk: self.disk.map(|disk| disk.check()).transpose()?,
            },
            source: self.source,
        })
    }
}

impl LinkToml {
    /// `key` is the link's own.
    fn check(&self, key: &str) -> Result<Link, FormatError> {
        let rate = |rate: &Rate, name: &str| rate.of("B/s", &format!("{key}.{name}"));
        Ok(Link {
            out_bandwidth: rate(&self.out, "out")?,
            in_bandwidth: rate(&self.inward, "in")?,
            duplex_cap: self.duplex.as_ref().map_or(Ok(f64::INFINITY), |cap| rate(cap, "duplex"))?,
            latency: self.latency.positive(&format!("{key}.latency"))?,
            asynchronous: self.asynchronous,
        })
    }
}

impl DiskToml {
    fn check(&self) -> Result<Store, FormatError> {
        let capacity = self.capacity.positive("disk.capacity")?;
        Ok(Store { capacity, link: self.link.check("disk.link")? })
    }
}

/// A figure as it stands in the file: a number in the base unit, or a text with a unit.
enum Figure {
    Number(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Figure, D::Error> {
        struct AnyFigure;
        impl Visitor<'_> for AnyFigure {
            type Value = Figure;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a text with a number and a unit")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Figure, E> {
                Ok(Figure::Text(number.to_string())) // Exact beyond 2^53.
            }
            fn visit_f64<E>(self, number: f64) -> Result<Figure, E> {
                Ok(Figure::Number(number))
            }
            fn visit_str<E>(self, text: &str) -> Result<Figure, E> {
                Ok(Figure::Text(text.chars().take(100).collect()))
            }
        }
        from.deserialize_any(AnyFigure)
    }
}

impl Figure {
    fn shown(&self) -> String {
        match self {
            Figure::Number(number) => number.to_string(),
            Figure::Text(text) => text.clone(),
        }
    }
}

/// Bytes: `"80GiB"`, `512`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Size(Figure);

impl Size {
    fn positive(&self, key: &str) -> Result<Bytes, FormatError> {
        let shown = self.0.shown();
        let size: Bytes = match self.0 {
            Figure::Number(number) if number.fract() != 0.0 => {
                Err(FormatError::new(key, format!("`{number}` is not a whole number of bytes")))
            }
            _ => shown.parse().map_err(|error: memfit_ir::BadSize| FormatError::new(key, error.to_string())),
        }?;
        if size == Bytes::ZERO {
            return Err(FormatError::new(key, "`0` is no size: at least a byte is needed"));
        }
        Ok(size)
    }
}

/// A rate: `"900GB/s"`, `"15.7 TFLOP/s"`, `9e11`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Rate(Figure);

/// Prefixes of rates. Binary ones are for bytes only.
const PREFIXES: [(&str, f64); 10] = [
    ("Ti", 1_099_511_627_776.0),
    ("Gi", 1_073_741_824.0),
    ("Mi", 1_048_576.0),
    ("Ki", 1024.0),
    ("P", 1e15),
    ("T", 1e12),
    ("G", 1e9),
    ("M", 1e6),
    ("k", 1e3),
    ("", 1.0),
];

impl Rate {
    /// In `unit`, which is `B/s` or `FLOP/s`.
    fn of(&self, unit: &str, key: &str) -> Result<f64, FormatError> {
        let rate = match &self.0 {
            Figure::Number(number) => Some(*number),
            Figure::Text(text) => {
                let (number, found) = split(text);
                let prefix = if found.is_empty() { Some("") } else { found.strip_suffix(unit) };
                let factor = prefix.and_then(|prefix| PREFIXES.iter().find(|(known, _)| *known == prefix));
                number.zip(factor).map(|(number, (_, factor))| number * factor)
            }
        };
        rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
            let example = if unit == "B/s" { "900GB/s" } else { "15.7TFLOP/s" };
            let message = format!("`{}` is not a positive rate: write it as `\"{example}\"`", self.0.shown());
            FormatError::new(key, message)
        })
    }
}

/// A time: `"10us"`; a number counts nanoseconds.
#[derive(Deserialize)]
#[serde(transparent)]
struct Time(Figure);

impl Time {
    fn positive(&self, key: &str) -> Result<Nanos, FormatError> {
        let seconds = match &self.0 {
            Figure::Number(number) => Some(number / 1e9),
            Figure::Text(text) => {
                let (number, unit) = split(text);
                let factor = match unit {
                    "" | "ns" => Some(1e-9),
                    "us" | "µs" | "μs" => Some(1e-6),
                    "ms" => Some(1e-3),
                    "s" => Some(1.0),
                    _ => None,
                };
                number.zip(factor).map(|(number, factor)| number * factor)
            }
        };
        let fits = |time: &Nanos| time.0 > 0 && time.0 < 1 << 62;
        seconds.filter(|seconds| seconds.is_finite()).map(Nanos::from_secs_f64).filter(fits).ok_or_else(
            || {
                let message = format!("`{}` is not a positive time: write it as `\"5us\"`", self.0.shown());
                FormatError::new(key, message)
            },
        )
    }
}

/// A text as a number and a unit.
fn split(text: &str) -> (Option<f64>, &str) {
    let text = text.trim();
    let number_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (text[..number_end].parse().ok(), text[number_end..].trim())
}
