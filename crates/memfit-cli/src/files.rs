//! Reading and writing the files that the user names, and no others.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context as _;
use memfit::{Device, Failure, Graph, formats, input};

use crate::args::GraphArgs;
use crate::error::Error;

/// The most bytes that are read from a file; what they unpack to is capped by the readers.
const MOST: u64 = 4 << 30;

/// All bytes of `path`, or of standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let result = if path == Path::new("-") {
        io::stdin().lock().take(MOST + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
    };
    let read = result.with_context(|| format!("can't read `{}`", path.display())).map_err(Error::Read)?;
    if read as u64 > MOST {
        return Err(Error::Read(anyhow::anyhow!("`{}` is larger than 4 GiB", path.display())));
    }
    Ok(bytes)
}

/// Writes `path`, or standard output for `-`, as [`write_with`] does.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_with(path, |out| out.write_all(bytes).map_err(|error| unwritten(path, error)))
}

/// Writes what `fill` writes to `path`, or standard output for `-`. A regular file is written beside, down to the disk, and renamed,
/// so that it is whole or as it was; it keeps its mode. A link is followed; pipes and devices are written to as they are.
pub(crate) fn write_with<T>(
    path: &Path,
    fill: impl FnOnce(&mut dyn io::Write) -> Result<T, Error>,
) -> Result<T, Error> {
    if path == Path::new("-") {
        return fill(&mut io::stdout().lock());
    }
    let failed = |error| unwritten(path, error);
    let place = followed(path);
    let there = fs::metadata(&place).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return fill(&mut fs::OpenOptions::new().write(true).open(&place).map_err(failed)?);
    }
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = place.with_file_name(name);
    if let Ok(mut unfinished) = UNFINISHED.lock() {
        *unfinished = Some(beside.clone());
    }
    let written = write_beside(&beside, fill, failed).and_then(|made| {
        let mode = there.map_or(Ok(()), |there| fs::set_permissions(&beside, there.permissions()));
        mode.and_then(|()| fs::rename(&beside, &place)).map(|()| made).map_err(failed)
    });
    if written.is_err() {
        // Nothing more can be done about a file that can't be removed either.
        drop(fs::remove_file(&beside));
    }
    if let Ok(mut unfinished) = UNFINISHED.lock() {
        *unfinished = None;
    }
    written
}

fn write_beside<T>(
    beside: &Path,
    fill: impl FnOnce(&mut dyn io::Write) -> Result<T, Error>,
    failed: impl Fn(io::Error) -> Error,
) -> Result<T, Error> {
    let mut file = io::BufWriter::with_capacity(1 << 20, fs::File::create(beside).map_err(&failed)?);
    let made = fill(&mut file)?;
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(made)
}

/// That `path` could not be written.
pub(crate) fn unwritten(path: &Path, error: io::Error) -> Error {
    Error::Write(anyhow::Error::new(error).context(format!("can't write `{}`", path.display())))
}

/// The file that is being written beside its place.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The process is about to end: removes what is half written.
pub(crate) fn abandon() {
    // Held until the process is gone, so that nothing is begun any more.
    if let Ok(unfinished) = UNFINISHED.lock() {
        if let Some(path) = &*unfinished {
            drop(fs::remove_file(path));
        }
        std::mem::forget(unfinished);
    }
}

/// Where the links at `path` lead, whether there is a file or not.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    // As many as systems follow; a circle of links is reported by whoever opens it.
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    path
}

/// Bytes as the ending of `path` asks for: compressed for `.zst`.
pub(crate) fn packed(path: &Path, bytes: Vec<u8>) -> Vec<u8> {
    if path.extension().is_some_and(|ending| ending == "zst") { formats::compress(&bytes) } else { bytes }
}

/// The graph in `path`.
pub(crate) fn graph(path: &Path, dims: &[(String, u64)]) -> Result<Graph, Error> {
    reading(path, &options(dims))
}

/// How to read a file of whose open dimensions these are the sizes.
pub(crate) fn options(dims: &[(String, u64)]) -> input::Options {
    input::Options { dims: dims.iter().cloned().collect(), body: None }
}

/// The graph that `args` name.
pub(crate) fn graph_of(args: &GraphArgs) -> Result<Graph, Error> {
    reading(&args.graph, &input::Options { body: args.body.clone(), ..options(&args.dim) })
}

fn reading(path: &Path, options: &input::Options) -> Result<Graph, Error> {
    let bytes = read(path)?;
    input::graph(&bytes, options).map_err(|failure| about(path, failure))
}

/// `failure`, which is about the file at `path`.
pub(crate) fn about(path: &Path, failure: Failure) -> Error {
    Error::Failure { file: Some(path.display().to_string()), failure }
}

/// The device that `--device` names.
pub(crate) fn device(name: &str) -> Result<Device, Error> {
    let is_file = name.ends_with(".toml") || name.contains(['/', '\\']);
    if !is_file {
        return Ok(input::device(name)?);
    }
    let path = PathBuf::from(name);
    let bytes = read(&path)?;
    input::device_file(&String::from_utf8_lossy(&bytes)).map_err(|failure| about(&path, failure))
}
