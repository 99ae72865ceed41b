//! Several pieces of a transfer at a time, around the page cache: `io_uring`, on a file that is set to direct I/O.
//!
//! Pieces go through buffers of the ring's own, which lie as direct I/O asks for: while the disk works on some, others are filled.
//! After the end of what is written come zeros up to the next multiple of [`ALIGN`]; reading leaves them out.

#![allow(
    unsafe_code,
    reason = "the kernel reads and writes buffers that outlive the call, by their addresses"
)]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;

use io_uring::{IoUring, opcode, types::Fd};
use memmap2::{Advice, MmapMut};

use crate::scratch::ALIGN;

/// Pieces under way at a time.
const DEPTH: u8 = 4;

/// Bytes of a piece: a huge page. Of scattered pages a disk's queue takes but so many at a time, which makes small requests.
const PIECE: usize = 2 << 20;

/// See the head of this file.
pub(crate) struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    /// Pieces that the kernel has and did not give back.
    under_way: usize,
}

/// A piece of a transfer, and its buffer.
struct Slot {
    memory: MmapMut,
    /// Where the piece lies in the transfer.
    start: usize,
    len: usize,
    /// What the kernel has done of it: a multiple of [`ALIGN`].
    done: usize,
}

/// What is moved, to or from positions of a file that begin at a multiple of [`ALIGN`].
pub(crate) enum Transfer<'a> {
    Write(&'a [u8]),
    Read(&'a mut [u8]),
}

impl Ring {
    /// One without anything under way.
    ///
    /// # Errors
    ///
    /// Where the kernel has no `io_uring`, or whoever runs the process forbids it.
    pub(crate) fn new() -> io::Result<Ring> {
        Ok(Ring { ring: IoUring::new(u32::from(DEPTH))?, slots: Vec::new(), under_way: 0 })
    }

    /// Moves all of `transfer`, to or from `file` at `offset`.
    ///
    /// # Errors
    ///
    /// As the first piece that failed; which of the others are done is unknown.
    pub(crate) fn run(&mut self, file: &File, offset: u64, mut transfer: Transfer<'_>) -> io::Result<()> {
        if self.under_way > 0 {
            return Err(io::Error::other("the kernel did not end transfers before this one"));
        }
        let size = transfer.len();
        while self.slots.len() < usize::from(DEPTH).min(size.div_ceil(PIECE)) {
            self.slots.push(Slot::new()?);
        }
        let mut idle: Vec<usize> = (0..self.slots.len()).collect();
        let (mut begun, mut outcome) = (0, Ok(()));
        loop {
            while let (true, true, Some(at)) = (outcome.is_ok(), begun < size, idle.pop()) {
                let len = PIECE.min(size - begun);
                self.slots[at].begin(begun, len, &transfer);
                begun += len;
                outcome = self.submit(at, file, offset, &transfer);
            }
            if self.under_way == 0 {
                return outcome;
            }
            let (at, count) = self.next()?;
            match count.and_then(|count| self.slots[at].advance(count, &mut transfer)) {
                Ok(true) => idle.push(at),
                Ok(false) if outcome.is_ok() => outcome = self.submit(at, file, offset, &transfer),
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted && outcome.is_ok() => {
                    outcome = self.submit(at, file, offset, &transfer);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
    }

    /// Gives the kernel what is left of the piece in slot `at`.
    fn submit(&mut self, at: usize, file: &File, offset: u64, transfer: &Transfer<'_>) -> io::Result<()> {
        let fd = Fd(file.as_raw_fd());
        let slot = &mut self.slots[at];
        let position = offset + (slot.start + slot.done) as u64;
        let buffer = slot.rest();
        let len = u32::try_from(buffer.len()).map_err(io::Error::other)?;
        let address = buffer.as_mut_ptr();
        let entry = match transfer {
            Transfer::Write(_) => opcode::Write::new(fd, address, len).offset(position).build(),
            Transfer::Read(_) => opcode::Read::new(fd, address, len).offset(position).build(),
        };
        // SAFETY: the buffer is the slot's, which is not touched, grown or freed while `under_way` counts it: `run` deals with a slot
        // after its completion alone, and starts with none under way; `drop` waits, or leaves the memory to the kernel.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(at as u64)) };
        pushed.map_err(|full| io::Error::other(full.to_string()))?;
        self.under_way += 1;
        // The disk may begin while the next piece is filled. Where that fails, waiting says why.
        let _ = self.ring.submit();
        Ok(())
    }

    /// Waits for a piece: its slot, and how many bytes the kernel has done.
    fn next(&mut self) -> io::Result<(usize, io::Result<usize>)> {
        loop {
            if let Some(entry) = self.ring.completion().next() {
                self.under_way -= 1;
                let count = usize::try_from(entry.result());
                let count = count.map_err(|_| io::Error::from_raw_os_error(-entry.result()));
                return Ok((usize::try_from(entry.user_data()).map_err(io::Error::other)?, count));
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.under_way > 0 {
            if self.next().is_err() {
                return std::mem::forget(std::mem::take(&mut self.slots));
            }
        }
    }
}

impl Slot {
    /// With memory that nothing else had before: of that alone huge pages are made.
    fn new() -> io::Result<Slot> {
        let memory = MmapMut::map_anon(2 * PIECE)?;
        // Where it is refused, transfers are slower.
        let _ = memory.advise_range(Advice::HugePage, memory.as_ptr().align_offset(PIECE), PIECE);
        Ok(Slot { memory, start: 0, len: 0, done: 0 })
    }

    fn begin(&mut self, start: usize, len: usize, transfer: &Transfer<'_>) {
        (self.start, self.len, self.done) = (start, len, 0);
        if let Transfer::Write(bytes) = transfer {
            let buffer = self.rest();
            buffer[..len].copy_from_slice(&bytes[start..start + len]);
            buffer[len..].fill(0);
        }
    }

    /// The part of the buffer that is still to be done.
    fn rest(&mut self) -> &mut [u8] {
        let aligned = self.memory.as_ptr().align_offset(PIECE);
        &mut self.memory[aligned + self.done..aligned + self.len.next_multiple_of(ALIGN)]
    }

    /// `count` more bytes are done. Whether the piece is, whose bytes have then been taken.
    fn advance(&mut self, count: usize, transfer: &mut Transfer<'_>) -> io::Result<bool> {
        if self.done + count < self.len {
            let done = (self.done + count) / ALIGN * ALIGN;
            if done == self.done {
                return Err(transfer.cut_short().into());
            }
            self.done = done;
            return Ok(false);
        }
        if let Transfer::Read(bytes) = transfer {
            self.done = 0;
            let (start, len) = (self.start, self.len);
            bytes[start..start + len].copy_from_slice(&self.rest()[..len]);
        }
        Ok(true)
    }
}

impl Transfer<'_> {
    fn len(&self) -> usize {
        match self {
            Transfer::Write(bytes) => bytes.len(),
            Transfer::Read(bytes) => bytes.len(),
        }
    }

    fn cut_short(&self) -> ErrorKind {
        match self {
            Transfer::Write(_) => ErrorKind::WriteZero,
            Transfer::Read(_) => ErrorKind::UnexpectedEof,
        }
    }
}
