//! Where a program runs: memory, speed, links; and the limits a plan must keep.

use crate::graph::{Algorithm, Op, Price};
use crate::{Bytes, Codec, Dtype, Nanos};

/// A kind of memory beside the device's own, where copies wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Host memory.
    #[default]
    Host,
    /// A disk.
    Disk,
}

impl Tier {
    /// Every tier with its name in files.
    pub const ALL: [(Tier, &str); 2] = [(Tier::Host, "host"), (Tier::Disk, "disk")];

    /// Position in [`Tier::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Tier::ALL[self.index()].1
    }

    /// The tier called `name` in files.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Tier> {
        Tier::ALL.iter().find(|(_, known)| *known == name).map(|(tier, _)| *tier)
    }
}

/// A path between device memory and another tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second from the device to the tier.
    pub out_bandwidth: f64,
    /// Bytes per second from the tier to the device.
    pub in_bandwidth: f64,
    /// Bytes per second of both directions together; infinite if they don't disturb each other.
    pub duplex_cap: f64,
    /// Fixed time of one transfer.
    pub latency: Nanos,
    /// Whether ops go on while a transfer is under way; where not, whoever issues one waits for it.
    pub asynchronous: bool,
}

/// A rate in bytes per second that can be divided by: 1 GB/s for what is none.
#[must_use]
pub fn usable_rate(rate: f64) -> f64 {
    if rate.is_nan() || rate <= 0.0 { 1e9 } else { rate }
}

impl Link {
    /// What moving `size` bytes to the tier takes, if nothing else is on the way.
    #[must_use]
    pub fn out_time(&self, size: Bytes) -> Nanos {
        self.time(size, self.out_bandwidth)
    }

    /// What moving `size` bytes from the tier takes, if nothing else is on the way.
    #[must_use]
    pub fn in_time(&self, size: Bytes) -> Nanos {
        self.time(size, self.in_bandwidth)
    }

    fn time(&self, size: Bytes, rate: f64) -> Nanos {
        self.latency + Nanos::from_secs_f64(size.0 as f64 / usable_rate(rate))
    }
}

/// A tier of a device: how much of it plans may use, and the way there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Store {
    /// Bytes that plans may use.
    pub capacity: Bytes,
    /// The link between it and device memory.
    pub link: Link,
}

/// The machine a program is planned for. Speeds are peak figures; see `efficiency`.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Name, as given with `--device`.
    pub name: String,
    /// Bytes of device memory.
    pub memory: Bytes,
    /// Every buffer starts at a multiple of this. Non-zero.
    pub align: Bytes,
    /// Peak floating-point operations per second by dtype; a dtype that is absent runs at the rate of `F32`.
    pub flops: Vec<(Dtype, f64)>,
    /// Peak bytes per second between memory and processor.
    pub bandwidth: f64,
    /// Fraction of the peak rates that real kernels reach, `(compute, memory)`, each in `(0, 1]`.
    pub efficiency: (f64, f64),
    /// Time no kernel stays under: launch and tail.
    pub launch: Nanos,
    /// Bytes per second that a copy within the device reaches; `None`: each byte is read and written at the usable bandwidth.
    pub copy: Option<f64>,
    /// Plain bytes per second of codecs, `(encode, decode)`; one that is absent reads and writes at the usable bandwidth.
    pub codecs: Vec<(Codec, f64, f64)>,
    /// The link to host memory, if there is one.
    pub link: Option<Link>,
    /// Bytes of host memory that plans may use.
    pub host_memory: Bytes,
    /// The disk, if there is one that plans may use. Its link is its own: nothing of it passes the link to the host.
    pub disk: Option<Store>,
}

impl Device {
    /// Achievable floating-point operations per second on `dtype`.
    #[must_use]
    pub fn flops_for(&self, dtype: Dtype) -> f64 {
        let rate = |wanted| self.flops.iter().find(|(d, _)| *d == wanted).map(|&(_, rate)| rate);
        rate(dtype).or_else(|| rate(Dtype::F32)).unwrap_or(1e12) * self.efficiency.0
    }

    /// Predicted run time of `op`: what the graph measured, else the roofline
    /// `max(flops ÷ rate, bytes moved ÷ bandwidth)`, never under the launch time.
    /// Source: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
    #[must_use]
    pub fn time(&self, op: &Op<'_>) -> Nanos {
        op.time.unwrap_or_else(|| self.roofline((op.flops, op.moved), op.dtype))
    }

    /// The same of an algorithm of `op`.
    #[must_use]
    pub fn time_by(&self, op: &Op<'_>, algorithm: &Algorithm) -> Nanos {
        match algorithm.price {
            Price::Time(time) => time,
            Price::Work { flops, moved } => self.roofline((flops as f64, moved), op.dtype),
        }
    }

    /// The least time of `op` by any of its algorithms.
    #[must_use]
    pub fn least_time(&self, op: &Op<'_>) -> Nanos {
        op.algorithms.iter().map(|algorithm| self.time_by(op, algorithm)).fold(self.time(op), Nanos::min)
    }

    fn roofline(&self, (flops, moved): (f64, Bytes), dtype: Dtype) -> Nanos {
        let compute = flops / self.flops_for(dtype);
        let memory = moved.0 as f64 / (self.bandwidth * self.efficiency.1);
        Nanos::from_secs_f64(compute.max(memory)).max(self.launch)
    }

    /// Predicted time to copy `size` bytes within the device.
    #[must_use]
    pub fn copy_time(&self, size: Bytes) -> Nanos {
        let rate = self.copy.unwrap_or(self.bandwidth * self.efficiency.1 / 2.0);
        Nanos::from_secs_f64(size.0 as f64 / rate).max(self.launch)
    }

    /// Predicted times to encode `size` bytes by `codec`, and to decode what that makes, which may take as much as its bound.
    #[must_use]
    pub fn codec_times(&self, codec: Codec, size: Bytes) -> (Nanos, Nanos) {
        let usual = || {
            let moved = size.0 as f64 + codec.bound(size).0 as f64;
            [moved / usable_rate(self.bandwidth * self.efficiency.1); 2]
        };
        let own = self.codecs.iter().find(|(known, _, _)| *known == codec);
        let own =
            own.map(|&(_, encode, decode)| [encode, decode].map(|rate| size.0 as f64 / usable_rate(rate)));
        let [encode, decode] =
            own.unwrap_or_else(usual).map(|time| Nanos::from_secs_f64(time).max(self.launch));
        (encode, decode)
    }

    /// The link to `tier`, if there is one.
    #[must_use]
    pub fn link_to(&self, tier: Tier) -> Option<Link> {
        match tier {
            Tier::Host => self.link,
            Tier::Disk => self.disk.map(|disk| disk.link),
        }
    }

    /// Limits that allow everything this device has: one bank, exact results only.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            banks: vec![Bank { name: "device".to_owned(), capacity: self.memory, align: self.align }],
            host: self.host_memory,
            disk: self.disk.map_or(Bytes::ZERO, |disk| disk.capacity),
            lossy: Vec::new(),
            replays_random: false,
            lanes: 1,
        }
    }
}

/// One address space that buffers are placed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Name shown to people.
    pub name: String,
    /// Bytes that may be used: offsets and ends lie in `[0, capacity]`.
    pub capacity: Bytes,
    /// Every buffer in this bank starts at a multiple of this. Non-zero.
    pub align: Bytes,
}

/// What a plan must keep to: the judge checks a plan against these and nothing looser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The banks of device memory; the first one is *the arena* where only one is spoken of.
    pub banks: Vec<Bank>,
    /// Bytes of host memory for copies.
    pub host: Bytes,
    /// Bytes of disk for copies.
    pub disk: Bytes,
    /// Lossy codecs the user allowed by name. Empty: results stay bit-identical.
    pub lossy: Vec<Codec>,
    /// Whether the host can replay generator state, so that a `Seeded` op may run again.
    pub replays_random: bool,
    /// Number of compute lanes that steps may name.
    pub lanes: u16,
}

impl Limits {
    /// Bytes of `tier` for copies.
    #[must_use]
    pub fn tier(&self, tier: Tier) -> Bytes {
        match tier {
            Tier::Host => self.host,
            Tier::Disk => self.disk,
        }
    }

    /// One bank of `capacity` bytes with `align`, nothing else allowed.
    #[must_use]
    pub fn arena(capacity: Bytes, align: Bytes) -> Limits {
        Limits {
            banks: vec![Bank { name: "arena".to_owned(), capacity, align }],
            host: Bytes::ZERO,
            disk: Bytes::ZERO,
            lossy: Vec::new(),
            replays_random: false,
            lanes: 1,
        }
    }
}
