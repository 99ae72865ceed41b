//! Copies by their names: begun, waited for, forgotten.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use memfit_codec::{Coder, by_name};
use memfit_engine::{HostError, Wanted};
use memfit_ir::{Bytes, Codec, Form, Need, Tier};

use crate::pool::{Buffer, Pool};
use crate::queue::{Queue, Ticket};
use crate::room::Room;
use crate::spill::{Extent, Spill, SpillError};

/// What a host's storages are to a shelf.
pub trait Kept {
    /// What the host has to know of a storage to make it anew.
    type Of: Clone;
    /// The bytes of a storage. Nobody writes to them, or frees them, while this is there.
    type From: AsRef<[u8]> + Send + 'static;
    /// Memory that is to hold the bytes of a storage.
    type Into: AsMut<[u8]> + Send + 'static;
}

/// Copies of storages in device memory (encoded), host memory, and on disk. Each is made, and read, by a thread of its link:
/// what has been begun is there when it has been waited for.
pub struct Shelf<K: Kept> {
    copies: BTreeMap<u64, Copy<K>>,
    last: u64,
    room: Room,
    pool: Pool,
    spill: Option<Spill>,
    /// By tier: out, in.
    queues: [[Queue; 2]; Tier::ALL.len()],
    /// The process that all this belongs to.
    process: u32,
    watch: Option<Watch>,
}

impl<K: Kept> fmt::Debug for Shelf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("copies", &self.copies.len()).finish_non_exhaustive()
    }
}

struct Copy<K: Kept> {
    place: Option<Place>,
    codec: Option<Codec>,
    /// Bytes of the storage.
    size: usize,
    of: K::Of,
    busy: Option<Busy<K>>,
}

/// Is told of memory that a shelf takes for an encoded copy beside the framework's own, by its address and its bytes, and when it goes
/// back: then without bytes.
pub type Watch = fn(usize, Option<usize>);

/// An encoded copy in device memory.
#[derive(Debug)]
struct Packed {
    bytes: Vec<u8>,
    watch: Option<Watch>,
}

impl Packed {
    fn new(bytes: Vec<u8>, watch: Option<Watch>) -> Packed {
        let packed = Packed { bytes, watch };
        packed.tell(Some(packed.bytes.capacity()));
        packed
    }

    /// In no more memory than it takes.
    fn shrunk(mut self) -> Packed {
        self.tell(None);
        self.bytes.shrink_to_fit();
        self.tell(Some(self.bytes.capacity()));
        self
    }

    fn tell(&self, bytes: Option<usize>) {
        if let Some(watch) = self.watch.filter(|_| self.bytes.capacity() > 0) {
            watch(self.bytes.as_ptr().addr(), bytes);
        }
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        self.tell(None);
    }
}

/// Where the bytes of a copy are.
#[derive(Clone, Debug)]
enum Place {
    Here(Arc<Packed>),
    Host(Arc<Buffer>),
    Disk(Arc<Extent>, usize),
}

/// What is under way.
enum Busy<K: Kept> {
    Out(Ticket<(Option<K::From>, Place)>),
    Into(Ticket<K::Into>),
}

/// What a host gets back from a transfer that has ended.
pub struct Ended<K: Kept> {
    /// What was copied: nobody reads it any more.
    pub from: Option<K::From>,
    /// What was to be filled, with the bytes in it.
    pub into: Option<(K::Into, K::Of)>,
}

impl<K: Kept> Default for Shelf<K> {
    /// One with nowhere to put copies but in device memory.
    fn default() -> Shelf<K> {
        Shelf {
            copies: BTreeMap::new(),
            last: 0,
            room: Room::default(),
            pool: Pool::new(0),
            spill: None,
            queues: Default::default(),
            process: std::process::id(),
            watch: None,
        }
    }
}

impl<K: Kept> Shelf<K> {
    /// A shelf with `room`.
    ///
    /// # Errors
    ///
    /// If no file can be made where the disk is to be.
    pub fn new(room: Room) -> Result<Shelf<K>, SpillError> {
        let capacity = usize::try_from(room.host.map_or(0, |bytes| bytes.0)).unwrap_or(usize::MAX);
        let spill = room.disk.as_ref().map(|disk| Spill::new(&disk.directory, disk.capacity)).transpose()?;
        let mut queues: [[Queue; 2]; Tier::ALL.len()] = Default::default();
        if let Some(rate) = room.link {
            queues[Tier::Host.index()] = [(); 2].map(|()| Queue::paced(crate::rates::LATENCY, rate));
        }
        Ok(Shelf { pool: Pool::new(capacity), spill, queues, room, ..Shelf::default() })
    }

    /// Tells `watch` of encoded copies in device memory from now on, for frameworks whose allocator is watched.
    #[must_use]
    pub fn watched_by(self, watch: Watch) -> Shelf<K> {
        Shelf { watch: Some(watch), ..self }
    }

    /// Begins a copy of `from`, the bytes of a storage that is `of`, as `wanted`. One in device memory is made at once.
    ///
    /// # Errors
    ///
    /// If there is no room for it, it takes more than that, or the form is one that can't be made here.
    pub fn store(
        &mut self,
        from: K::From,
        of: K::Of,
        wanted: Wanted,
    ) -> Result<(u64, Option<K::From>), HostError> {
        self.look();
        let (form, size) = (wanted.form, from.as_ref().len());
        if let Some(codec) = form.codec() {
            let packed = encoded(codec, from.as_ref(), wanted)?;
            let place = Some(Place::Here(Arc::new(Packed::new(packed, self.watch).shrunk())));
            let made = self.add(Copy { place, codec: Some(codec), size, of, busy: None });
            return match form.tier() {
                None => Ok((made, Some(from))),
                Some(_) => {
                    let copy = self.forward(made, form);
                    self.discard(made);
                    copy.map(|copy| (copy, Some(from)))
                }
            };
        }
        let ticket = match form.tier() {
            Some(Tier::Host) => {
                let mut buffer = self.host_room(size)?;
                self.queue(Tier::Host, 0).send(size, move || {
                    buffer.fill(from.as_ref()).map_err(HostError)?;
                    Ok((Some(from), Place::Host(Arc::new(buffer))))
                })
            }
            Some(Tier::Disk) => {
                let extent = self.disk()?.take(size)?;
                self.queue(Tier::Disk, 0).send(size, move || {
                    extent.write(from.as_ref())?;
                    Ok((Some(from), Place::Disk(Arc::new(extent), size)))
                })
            }
            None => Err(HostError("a copy in device memory is an encoded one".to_owned())),
        }?;
        Ok((self.add(Copy { place: None, codec: None, size, of, busy: Some(Busy::Out(ticket)) }), None))
    }

    /// Begins a copy of the encoded copy `from`, which stays encoded, where `form` says.
    ///
    /// # Errors
    ///
    /// If there is no such copy, or no room for another.
    pub fn forward(&mut self, from: u64, form: Form) -> Result<u64, HostError> {
        self.look();
        let Copy { place, codec, size, of, .. } = self.copy(from)?;
        let (place, codec, size, of) = (place.clone(), *codec, *size, of.clone());
        let place = place.ok_or_else(|| HostError(format!("copy `{from}` is under way")))?;
        let (tier, direction) = match (form.tier(), &place) {
            (Some(tier), _) => (tier, 0),
            (None, Place::Disk(..)) => (Tier::Disk, 1),
            (None, _) => (Tier::Host, 1),
        };
        let (taken, watch) = (place.len(), self.watch);
        let ticket = if form.tier() == Some(Tier::Disk) {
            let extent = self.disk()?.take(taken)?;
            self.queue(tier, direction).send(taken, move || {
                extent.write(&place.read()?)?;
                Ok((None, Place::Disk(Arc::new(extent), taken)))
            })
        } else {
            let buffer = form.tier().map(|_| self.host_room(taken)).transpose()?;
            self.queue(tier, direction).send(taken, move || Ok((None, copied(&place, buffer, watch)?)))
        }?;
        Ok(self.add(Copy { place: None, codec, size, of, busy: Some(Busy::Out(ticket)) }))
    }

    /// Bytes of an encoded copy in device memory.
    #[must_use]
    pub fn taken(&self, copy: u64) -> Option<Bytes> {
        match &self.copies.get(&copy)?.place {
            Some(Place::Here(packed)) => Some(Bytes(packed.bytes.capacity() as u64)),
            _ => None,
        }
    }

    /// What the storage is that was copied, and its bytes.
    ///
    /// # Errors
    ///
    /// If there is no such copy.
    pub fn of(&self, copy: u64) -> Result<(&K::Of, usize), HostError> {
        self.copy(copy).map(|copy| (&copy.of, copy.size))
    }

    /// Begins to fill `into` with the bytes of the storage that was copied. From a copy in device memory it's done at once.
    ///
    /// # Errors
    ///
    /// If there is no such copy, it is damaged, or of another size.
    pub fn load(&mut self, copy: u64, mut into: K::Into) -> Result<(), HostError> {
        self.look();
        let Copy { place, codec, size, .. } = self.copy(copy)?;
        let (place, codec, size) = (place.clone(), *codec, *size);
        let place = place.ok_or_else(|| HostError(format!("copy `{copy}` is under way")))?;
        if into.as_mut().len() != size {
            return Err(HostError(format!("copy `{copy}` is of another size")));
        }
        let is_here = matches!(place, Place::Here(_));
        let tier = match place {
            Place::Here(_) | Place::Host(_) => Tier::Host,
            Place::Disk(..) => Tier::Disk,
        };
        let work = move || {
            match (codec, &place) {
                (None, Place::Disk(extent, _)) => extent.read(into.as_mut())?,
                (None, _) => into.as_mut().copy_from_slice(&place.read()?),
                (Some(codec), _) => {
                    let decoded = coder(codec)?.decode_into(&place.read()?, into.as_mut());
                    decoded.map_err(|damaged| HostError(damaged.to_string()))?;
                }
            }
            Ok(into)
        };
        let ticket = match is_here {
            true => Ticket::done(work()),
            false => self.queue(tier, 1).send(size, work)?,
        };
        if let Some(copy) = self.copies.get_mut(&copy) {
            copy.busy = Some(Busy::Into(ticket));
        }
        Ok(())
    }

    /// Waits until what is under way with a copy is done.
    ///
    /// # Errors
    ///
    /// If that failed, and why: the copy, or what was to be filled from it, is worth nothing.
    pub fn wait(&mut self, copy: u64) -> Result<Ended<K>, HostError> {
        self.look();
        let row = self.copies.get_mut(&copy).ok_or_else(|| missing(copy))?;
        match row.busy.take() {
            None => Ok(Ended { from: None, into: None }),
            Some(Busy::Out(ticket)) => {
                let (from, place) = ticket.wait()?;
                row.place = Some(place);
                Ok(Ended { from, into: None })
            }
            Some(Busy::Into(ticket)) => {
                let into = ticket.wait()?;
                Ok(Ended { from: None, into: Some((into, row.of.clone())) })
            }
        }
    }

    /// Forgets a copy.
    pub fn discard(&mut self, copy: u64) {
        self.copies.remove(&copy);
    }

    fn copy(&self, copy: u64) -> Result<&Copy<K>, HostError> {
        self.copies.get(&copy).ok_or_else(|| missing(copy))
    }

    fn add(&mut self, copy: Copy<K>) -> u64 {
        self.last += 1;
        self.copies.insert(self.last, copy);
        self.last
    }

    fn host_room(&self, size: usize) -> Result<Buffer, HostError> {
        let none = || HostError(format!("host memory for copies has no room for `{size}` bytes"));
        self.pool.take(size).ok_or_else(none)
    }

    fn disk(&self) -> Result<&Spill, HostError> {
        self.spill.as_ref().ok_or_else(|| HostError("there is no disk for copies".to_owned()))
    }

    fn queue(&mut self, tier: Tier, direction: usize) -> &mut Queue {
        &mut self.queues[tier.index()][direction]
    }

    /// A process that is a copy of the one that made the shelf has none of its threads, and shares its file: transfers that
    /// were under way never end there, and what is on the disk is the other's.
    fn look(&mut self) {
        let process = std::process::id();
        if process == self.process {
            return;
        }
        self.process = process;
        self.queues.iter_mut().flatten().for_each(Queue::forget);
        self.copies.retain(|_, copy| match copy {
            Copy { place: Some(Place::Here(_) | Place::Host(_)), busy: None, .. } => true,
            lost => {
                std::mem::forget(lost.busy.take());
                std::mem::forget(lost.place.take());
                false
            }
        });
        let disk = self.room.disk.as_ref();
        std::mem::forget(self.spill.take());
        self.spill = disk.and_then(|disk| Spill::new(&disk.directory, disk.capacity).ok());
    }
}

impl Place {
    fn len(&self) -> usize {
        match self {
            Place::Here(packed) => packed.bytes.len(),
            Place::Host(buffer) => buffer.bytes().len(),
            Place::Disk(_, size) => *size,
        }
    }

    fn read(&self) -> Result<Cow<'_, [u8]>, HostError> {
        match self {
            Place::Here(packed) => Ok(Cow::Borrowed(&packed.bytes)),
            Place::Host(buffer) => Ok(Cow::Borrowed(buffer.bytes())),
            Place::Disk(extent, size) => {
                let mut bytes = vec![0; *size];
                extent.read(&mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

fn missing(copy: u64) -> HostError {
    HostError(format!("there is no copy `{copy}`"))
}

/// The bytes at `place`, in `buffer`, or with none in device memory.
fn copied(place: &Place, buffer: Option<Buffer>, watch: Option<Watch>) -> Result<Place, HostError> {
    let bytes = place.read()?;
    match buffer {
        Some(mut buffer) => {
            buffer.fill(&bytes).map_err(HostError)?;
            Ok(Place::Host(Arc::new(buffer)))
        }
        None => Ok(Place::Here(Arc::new(Packed::new(bytes.into_owned(), watch)))),
    }
}

fn coder(codec: Codec) -> Result<&'static dyn Coder, HostError> {
    by_name(codec.name()).ok_or_else(|| HostError(format!("there is no codec `{}` here", codec.name())))
}

/// `bytes` by `codec`, in a buffer of its bound or of the room for them.
fn encoded(codec: Codec, bytes: &[u8], wanted: Wanted) -> Result<Vec<u8>, HostError> {
    let coder = coder(codec)?;
    if codec.keeps() == Need::Sign && any(bytes, f32::is_nan) {
        // A NaN is not above zero, and not below: whoever asks for one of both may have another answer than for zero.
        return Err(HostError(format!("`{}` keeps no NaN", codec.name())));
    }
    // Zero would be no approximation of it.
    if codec.name().ends_with("+mask") && any(bytes, |word| word < 0.0 || word.is_nan()) {
        return Err(HostError(format!("`{}` keeps nothing that is below zero", codec.name())));
    }
    let room = usize::try_from(wanted.room.0).unwrap_or(usize::MAX);
    let more = || HostError(format!("what is stored takes more than `{room}` bytes"));
    coder.encode(bytes, room, wanted.key).ok_or_else(more)
}

/// Whether one of the words is as `asked`.
fn any(bytes: &[u8], asked: impl Fn(f32) -> bool) -> bool {
    let (words, _) = bytes.as_chunks();
    words.iter().fold(false, |found, word| found | asked(f32::from_ne_bytes(*word)))
}
