//! Copies of storages in the memory of the machine that trains, for hosts that can show the bytes of a storage.
//!
//! The part of [`Host`](memfit_engine::Host) that is the same for all of them: names, codecs, and what there is no memory
//! for. Copies are made and read at once, so nothing is ever under way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use memfit_codec::zvc;
use memfit_engine::{HostError, Settings};
use memfit_ir::{Bytes, Codec, Form, Link, Nanos, Store, Tier};

use crate::Failure;

/// Bytes that are copied to see how fast that is.
const TRIAL: usize = 8 << 20;

/// See the head of this file. With each copy goes what its host has to know of the storage to make it anew: `T`.
#[derive(Debug)]
pub struct Shelf<T = ()> {
    copies: BTreeMap<u64, Copy<T>>,
    last: u64,
}

#[derive(Clone, Debug)]
struct Copy<T> {
    bytes: Arc<Vec<u8>>,
    codec: Option<Codec>,
    /// Bytes of the storage.
    size: usize,
    of: T,
}

impl<T> Default for Shelf<T> {
    fn default() -> Shelf<T> {
        Shelf { copies: BTreeMap::new(), last: 0 }
    }
}

/// Settings of an engine whose framework chooses addresses, so that bytes are counted: within `budget`, with `copies` bytes of
/// the process's memory for copies, and the codecs called `lossless`. What both are like here is measured by `clock`.
///
/// # Errors
///
/// [`Failure::Usage`] if there is no codec of one of the names.
pub fn host_settings<N: AsRef<str>>(
    budget: Bytes,
    copies: Option<Bytes>,
    lossless: &[N],
    clock: &dyn Fn() -> Duration,
) -> Result<Settings, Failure> {
    let known = if lossless.is_empty() { Vec::new() } else { codecs(clock) };
    let is_called = |codec: Codec, name: &N| codec.name() == name.as_ref();
    if let Some(name) = lossless.iter().find(|name| !known.iter().any(|row| is_called(row.0, name))) {
        let names: Vec<&str> = known.iter().map(|(codec, ..)| codec.name()).collect();
        return Err(Failure::usage(
            format!("there is no lossless codec `{}`", name.as_ref()),
            format!("the codecs are `{}`", names.join("`, `")),
        ));
    }
    let is_asked = |row: &(Codec, f64, f64)| lossless.iter().any(|name| is_called(row.0, name));
    Ok(Settings {
        align: Bytes(1),
        allocator: "ideal".to_owned(),
        codecs: known.into_iter().filter(is_asked).collect(),
        tiers: [copies.map(|capacity| host_memory(capacity, clock)), None],
        ..Settings::new(budget)
    })
}

/// Memory of the process for copies, of `capacity` bytes. What the way there is like is measured once in a process, by
/// `clock`: each byte goes out of what the framework calls its memory, and into a place of its own.
#[must_use]
pub fn host_memory(capacity: Bytes, clock: &dyn Fn() -> Duration) -> Store {
    static LINK: OnceLock<Link> = OnceLock::new();
    Store { capacity, link: *LINK.get_or_init(|| link(2, clock)) }
}

/// The share of the words of four bytes in `bytes` that are not zero, for [`memfit_engine::Host::density`].
#[must_use]
pub fn density(bytes: &[u8]) -> f32 {
    zvc::filled_words(bytes) as f32 / bytes.len().div_ceil(4).max(1) as f32
}

/// The codecs that a shelf has, and the plain bytes per second at which they pack and unpack half of nothing: measured once in a
/// process, by `clock`. Each byte is read out of what the framework calls its memory, and goes to a place of its own.
#[must_use]
pub fn codecs(clock: &dyn Fn() -> Duration) -> Vec<(Codec, f64, f64)> {
    static RATES: OnceLock<(f64, f64)> = OnceLock::new();
    let &(encode, decode) = RATES.get_or_init(|| {
        // Half of the words, without a pattern that a processor could foresee.
        let words = (0..TRIAL as u64 / 4).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        let words =
            words.map(|bytes| if bytes[7] & 1 == 1 { [1, bytes[4], bytes[5], bytes[6]] } else { [0; 4] });
        let plain: Vec<u8> = words.flatten().collect();
        let packed = zvc::encode(&plain);
        let encode =
            fastest(clock, || zvc::encode_within(&std::hint::black_box(plain.clone()), packed.len()));
        let decode = fastest(clock, || Some(zvc::decode(&packed, plain.len()).ok()?.as_slice().to_vec()));
        (encode, decode)
    });
    vec![(Codec::Zvc, encode, decode)]
}

/// Bytes per second of a call that deals with [`TRIAL`] of them: that which takes least of three.
fn fastest<T>(clock: &dyn Fn() -> Duration, mut run: impl FnMut() -> T) -> f64 {
    // The first one also takes what memory takes that is new to the process, as later ones may.
    let taken = (0..3).map(|_| {
        let started = clock();
        let made = std::hint::black_box(run());
        let taken = clock().saturating_sub(started);
        drop(made);
        taken
    });
    let taken = taken.min().unwrap_or_default().max(Duration::from_nanos(1));
    TRIAL as f64 / taken.as_secs_f64()
}

/// What copying is like here, where each byte is copied `times` in each direction: what copying a few MiB takes, by `clock`.
fn link(times: u32, clock: &dyn Fn() -> Duration) -> Link {
    let from = vec![1u8; TRIAL];
    let bandwidth = fastest(clock, || from.clone()) / f64::from(times.max(1));
    let latency = Nanos(10_000);
    Link {
        out_bandwidth: bandwidth,
        in_bandwidth: bandwidth,
        duplex_cap: f64::INFINITY,
        latency,
        asynchronous: false,
    }
}

impl<T: Clone> Shelf<T> {
    /// A copy of `bytes`, those of a storage that is `of`, in `form`, of at most `room` bytes.
    ///
    /// # Errors
    ///
    /// If the machine has no memory for it, it takes more, or the form is one that can't be made here: a disk, or a lossy codec.
    pub fn store(&mut self, bytes: &[u8], of: T, form: Form, room: Bytes) -> Result<u64, HostError> {
        let codec = match form {
            Form::Tier(Tier::Host) => None,
            Form::Encoded(codec) | Form::EncodedOn(Tier::Host, codec) => Some(codec),
            Form::Tier(Tier::Disk) | Form::EncodedOn(Tier::Disk, _) => {
                return Err(HostError("this host has no disk for copies".to_owned()));
            }
        };
        let copied = match codec {
            None => {
                let mut copied = Vec::new();
                let none =
                    |_| HostError(format!("the machine has no memory for a copy of `{}` bytes", bytes.len()));
                copied.try_reserve_exact(bytes.len()).map_err(none)?;
                copied.extend_from_slice(bytes);
                copied
            }
            Some(Codec::Zvc) => {
                let room = usize::try_from(room.0).unwrap_or(usize::MAX);
                zvc::encode_within(bytes, room)
                    .ok_or_else(|| HostError(format!("what is stored takes more than `{room}` bytes")))?
            }
            Some(codec) => return Err(HostError(format!("there is no codec `{}` here", codec.name()))),
        };
        Ok(self.add(Copy { bytes: Arc::new(copied), codec, size: bytes.len(), of }))
    }

    /// Another name for what `copy` is: wherever it is said to be, it is here.
    ///
    /// # Errors
    ///
    /// If there is no such copy.
    pub fn share(&mut self, copy: u64) -> Result<u64, HostError> {
        let same = self.copy(copy)?.clone();
        Ok(self.add(same))
    }

    /// The bytes of the storage that was copied, and what it is.
    ///
    /// # Errors
    ///
    /// If there is no such copy, or it is damaged.
    pub fn read(&self, copy: u64) -> Result<(Cow<'_, [u8]>, &T), HostError> {
        let Copy { bytes, codec, size, of } = self.copy(copy)?;
        let bytes = match codec {
            None => Cow::Borrowed(bytes.as_slice()),
            Some(_) => {
                let decoded = zvc::decode(bytes, *size);
                Cow::Owned(decoded.map_err(|damaged| HostError(damaged.to_string()))?)
            }
        };
        Ok((bytes, of))
    }

    /// Forgets a copy.
    pub fn discard(&mut self, copy: u64) {
        self.copies.remove(&copy);
    }

    fn copy(&self, copy: u64) -> Result<&Copy<T>, HostError> {
        self.copies.get(&copy).ok_or_else(|| HostError(format!("there is no copy `{copy}`")))
    }

    fn add(&mut self, copy: Copy<T>) -> u64 {
        self.last += 1;
        self.copies.insert(self.last, copy);
        self.last
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn settings_have_what_a_host_asks_for() {
        let settings =
            |copies, lossless: &[&str]| host_settings(Bytes(1 << 20), copies, lossless, &|| Duration::ZERO);
        let none = settings(None, &[]).unwrap();
        assert!(none.tiers == [None, None] && none.codecs.is_empty() && none.allocator == "ideal");
        let both = settings(Some(Bytes(1 << 30)), &["zvc"]).unwrap();
        assert_eq!((both.tiers[0].unwrap().capacity, both.codecs[0].0), (Bytes(1 << 30), Codec::Zvc));
        let unknown = settings(None, &["zvc", "lzw"]).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no lossless codec `lzw`");
        assert_eq!(unknown.hint().as_deref(), Some("the codecs are `zvc`"));
    }

    #[test]
    fn plans_count_for_a_codec_what_it_takes_at_most() {
        for size in (0..300).chain([4096, 65_535, 1 << 20]) {
            assert_eq!(Codec::Zvc.bound(Bytes(size as u64)).0, zvc::bound(size) as u64);
        }
    }

    #[test]
    fn copies_have_the_bytes_in_every_form() {
        let bytes: Vec<u8> =
            (0..1000usize).map(|at| if at % 16 < 4 { at.to_le_bytes()[0] } else { 0 }).collect();
        let mut shelf = Shelf::default();
        for form in
            [Form::Tier(Tier::Host), Form::Encoded(Codec::Zvc), Form::EncodedOn(Tier::Host, Codec::Zvc)]
        {
            let copy = shelf.store(&bytes, "a storage", form, Bytes(1000)).unwrap();
            let other = shelf.share(copy).unwrap();
            shelf.discard(copy);
            assert_eq!(shelf.read(other).unwrap(), (Cow::Borrowed(&bytes[..]), &"a storage"));
            assert!(shelf.read(copy).is_err());
        }
        assert!(shelf.store(&bytes, "", Form::Tier(Tier::Disk), Bytes(1000)).is_err());
        assert!(shelf.store(&bytes, "", Form::Encoded(Codec::CastF16), Bytes(500)).is_err());
        let packed = Bytes(zvc::encode(&bytes).len() as u64);
        assert!(shelf.store(&bytes, "", Form::Encoded(Codec::Zvc), packed).is_ok());
        assert!(shelf.store(&bytes, "", Form::Encoded(Codec::Zvc), Bytes(packed.0 - 1)).is_err());
    }
}
