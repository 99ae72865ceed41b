//! A file without a name: nothing is left of it however the process ends. It's read and written by positions.
//!
//! Where the system can, transfers go around the page cache, several pieces at a time (see [`ring`](crate::ring)): copies then take no
//! memory but the ring's buffers, and a disk is as fast each time. Elsewhere (containers that forbid `io_uring`, file systems without
//! direct I/O, other systems) they are positioned reads and writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

#[cfg(target_os = "linux")]
use linux as direct;
#[cfg(not(target_os = "linux"))]
use other as direct;

/// Direct I/O takes addresses, positions and sizes that are multiples of it.
pub(crate) const ALIGN: usize = 4096;

/// See the head of this file.
pub(crate) struct Scratch {
    file: File,
    direct: Option<direct::Direct>,
}

impl Scratch {
    /// One in `directory`.
    ///
    /// # Errors
    ///
    /// If no file can be made there.
    pub(crate) fn new(directory: &Path) -> io::Result<Scratch> {
        let file = tempfile::tempfile_in(directory)?;
        let direct = direct::Direct::new(&file).ok();
        Ok(Scratch { file, direct })
    }

    /// One that makes positioned reads and writes.
    #[cfg(test)]
    pub(crate) fn through_cache(directory: &Path) -> io::Result<Scratch> {
        Ok(Scratch { file: tempfile::tempfile_in(directory)?, direct: None })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether transfers go around the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Writes all `bytes` at `offset`, a multiple of [`ALIGN`]; up to the next multiple zeros may follow them.
    ///
    /// # Errors
    ///
    /// What the system says; then nothing is known of the bytes there.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.direct {
            Some(direct) => direct.write(&self.file, bytes, offset),
            None => self.file.write_all_at(bytes, offset),
        }
    }

    /// Fills `bytes` with what is at `offset`, a multiple of [`ALIGN`].
    ///
    /// # Errors
    ///
    /// What the system says, and that the file ends before.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.direct {
            Some(direct) => direct.read(&self.file, bytes, offset),
            None => self.file.read_exact_at(bytes, offset),
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::ALIGN;
    use crate::ring::{Ring, Transfer};

    /// A ring for each direction: both are used at a time.
    pub(super) struct Direct {
        out: Mutex<Ring>,
        back: Mutex<Ring>,
    }

    impl Direct {
        /// Sets the empty `file` to direct I/O, and tries a page. If that fails, the file is as it was.
        pub(super) fn new(file: &File) -> io::Result<Direct> {
            let flags = fcntl_getfl(file)?;
            let direct = Direct { out: Mutex::new(Ring::new()?), back: Mutex::new(Ring::new()?) };
            fcntl_setfl(file, flags | OFlags::DIRECT)?;
            let tried = direct.try_page(file).and_then(|()| file.set_len(0));
            if let Err(error) = tried {
                fcntl_setfl(file, flags)?;
                file.set_len(0)?;
                return Err(error);
            }
            Ok(direct)
        }

        fn try_page(&self, file: &File) -> io::Result<()> {
            let (written, mut read) = ([0x5a; ALIGN], [0; ALIGN]);
            self.write(file, &written, 0)?;
            self.read(file, &mut read, 0)?;
            if read == written { Ok(()) } else { Err(io::Error::other("other bytes than were written")) }
        }

        pub(super) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
            let mut ring = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            ring.run(file, offset, Transfer::Write(bytes))
        }

        pub(super) fn read(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
            let mut ring = self.back.lock().unwrap_or_else(PoisonError::into_inner);
            ring.run(file, offset, Transfer::Read(bytes))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::fs::File;
    use std::io;

    /// There is none on this system.
    pub(super) enum Direct {}

    impl Direct {
        pub(super) fn new(_: &File) -> io::Result<Direct> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn write(&self, _: &File, _: &[u8], _: u64) -> io::Result<()> {
            match *self {}
        }

        pub(super) fn read(&self, _: &File, _: &mut [u8], _: u64) -> io::Result<()> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// Sizes around a page and a piece, and more than are under way at a time.
    const SIZES: [usize; 8] = [1, 100, 4095, 4096, 4097, 2 << 20, (2 << 20) + 1, (19 << 20) + 12_345];

    fn bytes(size: usize, seed: usize) -> Vec<u8> {
        (0..size).map(|at| ((at * 31 + seed) % 251).to_le_bytes()[0]).collect()
    }

    #[test]
    fn both_ways_read_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        for scratch in
            [Scratch::new(directory.path()).unwrap(), Scratch::through_cache(directory.path()).unwrap()]
        {
            assert_eq!(scratch.file().metadata().unwrap().len(), 0);
            let pages = |size: usize| size.next_multiple_of(4096) as u64;
            let mut offset = 0;
            for (seed, size) in SIZES.into_iter().enumerate() {
                scratch.write(&bytes(size, seed), offset).unwrap();
                offset += pages(size);
            }
            // Once more, the first: those beside stay what they are.
            scratch.write(&bytes(SIZES[0], 77), 0).unwrap();
            assert!(scratch.file().metadata().unwrap().len() <= offset);
            offset = 0;
            for (seed, size) in SIZES.into_iter().enumerate() {
                let mut back = vec![0; size];
                scratch.read(&mut back, offset).unwrap();
                assert!(back == bytes(size, if seed == 0 { 77 } else { seed }), "{size}");
                offset += pages(size);
            }
        }
    }

    #[test]
    fn a_file_that_ends_before_is_an_error_each_time() {
        let directory = tempfile::tempdir().unwrap();
        for scratch in
            [Scratch::new(directory.path()).unwrap(), Scratch::through_cache(directory.path()).unwrap()]
        {
            let size = (6 << 20) + 1;
            scratch.write(&bytes(size, 1), 0).unwrap();
            for cut in [0, 10, 4096, 5 << 20, (6 << 20) - 1] {
                scratch.file().set_len(cut).unwrap();
                let error = scratch.read(&mut vec![0; size], 0).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}: {error}");
            }
            // And what comes after is right.
            scratch.write(&bytes(size, 2), 0).unwrap();
            let mut back = vec![0; size];
            scratch.read(&mut back, 0).unwrap();
            assert!(back == bytes(size, 2));
        }
    }

    #[test]
    fn two_threads_write_and_read_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(directory.path()).unwrap();
        let size = 3 << 20;
        scratch.write(&bytes(size, 0), 0).unwrap();
        std::thread::scope(|scope| {
            scope
                .spawn(|| (1..9).for_each(|at| scratch.write(&bytes(size, at), (at * size) as u64).unwrap()));
            for _ in 0..8 {
                let mut back = vec![0; size];
                scratch.read(&mut back, 0).unwrap();
                assert!(back == bytes(size, 0));
            }
        });
    }
}
