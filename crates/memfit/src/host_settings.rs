//! Settings of an engine whose framework chooses addresses.

use std::time::Duration;

use memfit_engine::Settings;
use memfit_ir::{Bytes, Codec};
use memfit_tiers::{Room, rates};

use crate::Failure;

/// Codecs that go by one name where a host may lose something: those of the systems that they come from.
const SETS: &[(&str, &[Codec])] = &[
    // Binarize and sparse storage, and all else in eight bits until its backward use.
    ("gist", &[Codec::Binarize, Codec::Zvc, Codec::ZvcFp8, Codec::CastFp8]),
    ("actnn", &[Codec::Int2, Codec::Int4, Codec::Int8]),
    ("gact", &[Codec::Int2, Codec::Int4, Codec::Int8]),
];

/// Settings of an engine whose framework chooses addresses, so that bytes are counted: within `budget`, with `room` for copies,
/// and the codecs called `lossless` and `lossy`: of the latter also `gist` and `actnn`, which stand for several. What all of them are
/// like here is measured, codecs by `clock`.
///
/// # Errors
///
/// [`Failure::Usage`] if there is no codec of one of the names, or a lossy one is called lossless; [`Failure::Resources`] if the
/// disk can't be used.
pub fn host_settings<N: AsRef<str>>(
    budget: Bytes,
    room: &Room,
    [lossless, lossy]: [&[N]; 2],
    clock: &dyn Fn() -> Duration,
) -> Result<Settings, Failure> {
    let mut codecs = named(lossy)?;
    for name in lossless {
        codecs.push(called(name.as_ref(), false)?);
    }
    codecs.sort_unstable();
    codecs.dedup();
    let host = room.host.map(|capacity| rates::host_memory(capacity, room.link));
    let disk = room.disk.as_ref().map(|disk| rates::disk(disk.capacity, &disk.directory));
    Ok(Settings {
        align: Bytes(1),
        allocator: "ideal".to_owned(),
        codecs: rates::codecs(&codecs, clock),
        tiers: [host, disk.transpose()?],
        ..Settings::new(budget)
    })
}

/// The codecs called `lossy`, those of which that stand for several included. Lossless ones may be among those.
fn named<N: AsRef<str>>(lossy: &[N]) -> Result<Vec<Codec>, Failure> {
    let mut codecs = Vec::new();
    for name in lossy.iter().map(AsRef::as_ref) {
        match SETS.iter().find(|(set, _)| *set == name) {
            Some((_, set)) => codecs.extend_from_slice(set),
            None => codecs.push(called(name, true)?),
        }
    }
    Ok(codecs)
}

/// The codecs that lose something among those that a host knows as `names`: what [`crate::check()`] is to allow.
///
/// # Errors
///
/// [`Failure::Usage`] if there is no lossy codec of one of the names.
pub fn lossy_codecs<N: AsRef<str>>(names: &[N]) -> Result<Vec<Codec>, Failure> {
    Ok(named(names)?.into_iter().filter(|codec| codec.is_lossy()).collect())
}

/// The codec called `name`, which may lose something or not.
fn called(name: &str, lossy: bool) -> Result<Codec, Failure> {
    if let Some(codec) = Codec::by_name(name).filter(|codec| codec.is_lossy() == lossy) {
        return Ok(codec);
    }
    let names = |lossy| {
        let codecs = Codec::ALL.iter().filter(move |(codec, _)| codec.is_lossy() == lossy);
        codecs.map(|(_, name)| *name).collect::<Vec<&str>>()
    };
    let mut known = names(lossy);
    if lossy {
        known.extend(SETS.iter().map(|(set, _)| *set));
    }
    let kind = if lossy { "lossy" } else { "lossless" };
    let hint = match Codec::by_name(name) {
        Some(_) if lossy => "it loses nothing: name it as a lossless one".to_owned(),
        Some(_) => "it loses something: it's used where `lossy` names it".to_owned(),
        None => format!("the {kind} codecs are `{}`", known.join("`, `")),
    };
    Err(Failure::usage(format!("there is no {kind} codec `{name}`"), hint))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn settings_have_what_a_host_asks_for() {
        let named = |room: &Room, codecs: [&[&str]; 2]| {
            host_settings(Bytes(1 << 20), room, codecs, &|| Duration::ZERO)
        };
        let settings = |room: &Room, lossless: &[&str]| named(room, [lossless, &[]]);
        assert_eq!(lossy_codecs(&["gist"]).unwrap(), [Codec::ZvcFp8, Codec::CastFp8]);
        let none = settings(&Room::default(), &[]).unwrap();
        assert!(none.tiers == [None, None] && none.codecs.is_empty() && none.allocator == "ideal");
        let room = Room { host: Some(Bytes(1 << 30)), link: Some(1e6), ..Room::default() };
        let both = settings(&room, &["zvc"]).unwrap();
        let host = both.tiers[0].unwrap();
        assert_eq!((host.capacity, both.codecs[0].0), (Bytes(1 << 30), Codec::Zvc));
        assert_eq!(host.link.out_bandwidth, 1e6);
        let unknown = settings(&Room::default(), &["zvc", "lzw"]).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no lossless codec `lzw`");
        assert_eq!(unknown.hint().as_deref(), Some("the lossless codecs are `zvc`, `csr`, `binarize`"));
        // Nothing is lost where only the one list names it.
        let codecs = |codecs| {
            named(&Room::default(), codecs).map(|settings| settings.codecs.iter().map(|row| row.0).collect())
        };
        let list: Vec<Codec> = codecs([&["zvc", "binarize"], &["int4", "int4"]]).unwrap();
        assert_eq!(list, [Codec::Zvc, Codec::Binarize, Codec::Int4]);
        assert_eq!(
            named(&Room::default(), [&["zvc"], &["int4"]]).unwrap().limits(Bytes(1)).lossy,
            [Codec::Int4]
        );
        for (codecs, why, hint) in [
            (
                [&["int4"][..], &[][..]],
                "there is no lossless codec `int4`",
                "it loses something: it's used where `lossy` names it",
            ),
            ([&[], &["zvc"]], "there is no lossy codec `zvc`", "it loses nothing: name it as a lossless one"),
        ] {
            let refused = named(&Room::default(), codecs).unwrap_err();
            assert_eq!((refused.to_string().as_str(), refused.hint().as_deref()), (why, Some(hint)));
        }
        let disk = memfit_tiers::Disk { capacity: Bytes(1), directory: "there/is/none".into() };
        let nowhere = settings(&Room { disk: Some(disk), ..Room::default() }, &[]).unwrap_err();
        assert_eq!(nowhere.exit_code(), 5);
        assert!(nowhere.to_string().starts_with("copies can't be written to `there/is/none`"), "{nowhere}");
    }
}
