//! Settings of an engine whose framework chooses addresses.

use std::time::Duration;

use memfit_engine::Settings;
use memfit_ir::{Bytes, Codec};
use memfit_tiers::{Room, rates};

use crate::Failure;

/// Settings of an engine whose framework chooses addresses, so that bytes are counted: within `budget`, with `room` for copies,
/// and the codecs called `lossless`. What all of them are like here is measured, codecs by `clock`.
///
/// # Errors
///
/// [`Failure::Usage`] if there is no codec of one of the names, [`Failure::Resources`] if the disk can't be used.
pub fn host_settings<N: AsRef<str>>(
    budget: Bytes,
    room: &Room,
    lossless: &[N],
    clock: &dyn Fn() -> Duration,
) -> Result<Settings, Failure> {
    let known = if lossless.is_empty() { Vec::new() } else { rates::codecs(clock) };
    let is_called = |codec: Codec, name: &N| codec.name() == name.as_ref();
    if let Some(name) = lossless.iter().find(|name| !known.iter().any(|row| is_called(row.0, name))) {
        let names: Vec<&str> = known.iter().map(|(codec, ..)| codec.name()).collect();
        return Err(Failure::usage(
            format!("there is no lossless codec `{}`", name.as_ref()),
            format!("the codecs are `{}`", names.join("`, `")),
        ));
    }
    let is_asked = |row: &(Codec, f64, f64)| lossless.iter().any(|name| is_called(row.0, name));
    let host = room.host.map(|capacity| rates::host_memory(capacity, room.link));
    let disk = room.disk.as_ref().map(|disk| rates::disk(disk.capacity, &disk.directory));
    Ok(Settings {
        align: Bytes(1),
        allocator: "ideal".to_owned(),
        codecs: known.into_iter().filter(is_asked).collect(),
        tiers: [host, disk.transpose()?],
        ..Settings::new(budget)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn settings_have_what_a_host_asks_for() {
        let settings = |room: &Room, lossless: &[&str]| {
            host_settings(Bytes(1 << 20), room, lossless, &|| Duration::ZERO)
        };
        let none = settings(&Room::default(), &[]).unwrap();
        assert!(none.tiers == [None, None] && none.codecs.is_empty() && none.allocator == "ideal");
        let room = Room { host: Some(Bytes(1 << 30)), link: Some(1e6), ..Room::default() };
        let both = settings(&room, &["zvc"]).unwrap();
        let host = both.tiers[0].unwrap();
        assert_eq!((host.capacity, both.codecs[0].0), (Bytes(1 << 30), Codec::Zvc));
        assert_eq!(host.link.out_bandwidth, 1e6);
        let unknown = settings(&Room::default(), &["zvc", "lzw"]).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no lossless codec `lzw`");
        assert_eq!(unknown.hint().as_deref(), Some("the codecs are `zvc`"));
        let disk = memfit_tiers::Disk { capacity: Bytes(1), directory: "there/is/none".into() };
        let nowhere = settings(&Room { disk: Some(disk), ..Room::default() }, &[]).unwrap_err();
        assert_eq!(nowhere.exit_code(), 5);
        assert!(nowhere.to_string().starts_with("copies can't be written to `there/is/none`"), "{nowhere}");
    }
}
