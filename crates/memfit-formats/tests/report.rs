//! What is written for viewers is read back by readers that share nothing with the writers.

#![allow(clippy::unwrap_used, reason = "the helpers of tests, too, may fail")]

use base64::Engine as _;
use memfit_formats::report::{
    Axis, Curve, Lane, MAX_PAGE, Report, Slice, SliceKind, Stay, chrome_trace, html, memory_viz, perfetto,
    shown_name,
};
use memfit_formats::snapshot::{Action, BlockState, read};
use memfit_ir::{Bytes, Nanos, Place};
use serde_json::Value;

mod common;
use common::Random;

/// A report of `count` stays on one another in time, with names of their own, and as many slices.
fn report(count: usize, seed: u64) -> Report {
    let mut random = Random(seed);
    let mut report = Report {
        title: "made up".to_owned(),
        axis: Axis::Steps,
        instants: count,
        times: (0..=count as u64).map(|at| Nanos(at * 1000)).collect(),
        lanes: vec![Lane { name: "compute".to_owned() }, Lane { name: "out to host".to_owned() }],
        ..Report::default()
    };
    for at in 0..count {
        let bytes = Bytes(1 + random.next() % (1 << 30));
        let until = (at + 1 + random.below(40)).min(count);
        let name = report.names.id(&format!("layer{}.value{at}.{:x}", at % 97, random.next()));
        let role = report.names.id(["parameter", "activation", "gradient"][random.below(3)]);
        let place = Some(Place { bank: 0, offset: Bytes((at as u64 % 64) << 31) });
        let size = bytes.round_up(Bytes(512));
        report.stays.push(Stay {
            name,
            role,
            module: 0,
            shape: 0,
            made_by: 0,
            bytes,
            size,
            place,
            from: at,
            until,
        });
        let (kind, _) = SliceKind::ALL[random.below(SliceKind::ALL.len())];
        let time = Nanos(1 + random.next() % 900);
        let start = Nanos(at as u64 * 1000);
        report.slices.push(Slice { lane: random.below(2), kind, name, start, time, bytes });
    }
    report
}

/// What the page holds.
fn data(page: &str) -> Value {
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = start + page[start..].find('<').unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(&page[start..end]).unwrap();
    serde_json::from_slice(&miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// A column of differences.
fn summed(value: &Value) -> Vec<u64> {
    let mut sum = 0;
    let add = |step: &Value| {
        sum += step.as_i64().unwrap();
        u64::try_from(sum).unwrap()
    };
    value.as_array().unwrap().iter().map(add).collect()
}

#[test]
fn a_page_has_every_stay_in_columns() {
    let report = report(500, 1);
    let data = data(&html(&report));
    let column = |name: &str| match name {
        "name" | "from" => summed(&data["stays"][name]),
        _ => numbers(&data["stays"][name]),
    };
    for (at, stay) in report.stays.iter().enumerate() {
        assert_eq!(column("bytes")[at] + column("pad")[at], stay.size.0);
        assert_eq!(
            (column("from")[at], column("for")[at]),
            (stay.from as u64, (stay.until - stay.from) as u64)
        );
        assert_eq!(column("offset")[at], stay.place.unwrap().offset.0);
        let name = usize::try_from(column("name")[at]).unwrap();
        assert_eq!(data["names"][name], report.names.get(stay.name));
    }
    assert_eq!(numbers(&data["times"]).iter().sum::<u64>(), report.times.last().unwrap().0);
    assert_eq!(data["slices"]["kind"].as_array().unwrap().len(), 500);
}

#[test]
fn what_does_not_fit_a_page_is_left_out_from_the_small_end_and_still_counted() {
    let report = report(150_000, 2);
    let page = html(&report);
    assert!(page.len() <= MAX_PAGE, "{}", page.len());
    assert!(page.len() > MAX_PAGE / 2, "{} bytes: more would have fitted", page.len());
    let data = data(&page);
    let kept = data["stays"]["name"].as_array().unwrap().len();
    let left = usize::try_from(data["left"].as_u64().unwrap()).unwrap();
    assert_eq!(kept + left, report.stays.len());
    let mut sizes: Vec<u64> = report.stays.iter().map(|stay| stay.size.0).collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let least = numbers(&data["stays"]["bytes"]).into_iter().min().unwrap();
    assert!(least + 512 > sizes[kept], "a larger one was left out");
    // Slices that are not drawn by themselves are part of one that is: nothing is idle that was at work.
    let slices = &data["slices"];
    let drawn = slices["kind"].as_array().unwrap().len();
    assert!(drawn < report.slices.len() && data["slicesLeft"].as_u64().unwrap() > 0, "{drawn}");
    let time = |all: Vec<u64>| all.into_iter().sum::<u64>();
    assert!(
        time(numbers(&slices["time"])) >= time(report.slices.iter().map(|slice| slice.time.0).collect()) / 2
    );
    // Kept ones and the sum of the others are never less than what is live, and never more than the most of a span.
    let at = numbers(&data["at"]);
    let live = report.live();
    let (from, long) = (summed(&data["stays"]["from"]), numbers(&data["stays"]["for"]));
    let mut sum = vec![0i128; at.len() + 1];
    for ((bytes, pad), (from, long)) in
        numbers(&data["stays"]["bytes"]).iter().zip(numbers(&data["stays"]["pad"])).zip(from.iter().zip(long))
    {
        sum[usize::try_from(*from).unwrap()] += i128::from(bytes + pad);
        sum[usize::try_from(from + long).unwrap()] -= i128::from(bytes + pad);
    }
    let rest = numbers(&data["rest"]);
    let mut now = 0;
    for span in 0..at.len() - 1 {
        now += sum[span];
        let range = usize::try_from(at[span]).unwrap()..usize::try_from(at[span + 1]).unwrap();
        let most = live[range].iter().max().unwrap().0;
        assert_eq!(now + i128::from(rest[span]), i128::from(most), "span {span}");
    }
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    let (one, other) = (report(300, 3), report(300, 3));
    assert_eq!(html(&one), html(&other));
    assert_eq!(perfetto(&one), perfetto(&other));
    assert_eq!(memory_viz(&one), memory_viz(&other));
}

#[test]
fn an_empty_report_is_written_in_every_form() {
    let empty = Report { before: Some(Curve::default()), ..Report::default() };
    assert!(html(&empty).contains("</html>"));
    assert!(read(&memory_viz(&empty)).unwrap().history[0].len() <= 1);
    assert!(!perfetto(&empty).is_empty());
    assert_eq!(chrome_trace(&empty)["traceEvents"].as_array().unwrap().len(), 1);
}

#[test]
fn names_are_cut_and_cleaned() {
    assert_eq!(shown_name("a\u{202e}b\u{1b}c\n"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    assert_eq!(shown_name(&"ä".repeat(5000)).chars().count(), 241);
}

/// A field of a message of Protocol Buffers.
#[derive(Clone, Debug, PartialEq)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, by number, in their order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            number |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return number;
            }
        }
        panic!("a number without end");
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (block, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(block)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn number(fields: &[(u64, Field<'_>)], wanted: u64) -> Option<u64> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Number(number) if *field == wanted => Some(*number),
        _ => None,
    })
}

fn block<'a>(fields: &[(u64, Field<'a>)], wanted: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(field, value)| match value {
        Field::Bytes(block) if *field == wanted => Some(*block),
        _ => None,
    })
}

fn text(fields: &[(u64, Field<'_>)], wanted: u64) -> String {
    String::from_utf8(block(fields, wanted).unwrap().to_vec()).unwrap()
}

/// Numbers of fields are those of Perfetto's schema: `trace_packet.proto`, `track_event.proto`, `track_descriptor.proto`.
#[test]
fn a_perfetto_trace_has_slices_and_counters_by_the_public_schema() {
    let report = report(200, 4);
    let trace = perfetto(&report);
    let (mut tracks, mut open) = (Vec::new(), std::collections::BTreeMap::new());
    let (mut slices, mut counted) = (Vec::new(), std::collections::BTreeMap::<u64, Vec<(u64, u64)>>::new());
    for (field, packet) in fields(&trace) {
        let Field::Bytes(packet) = packet else { panic!("a trace is packets") };
        assert_eq!(field, 1);
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "every packet is of one sequence");
        if let Some(track) = block(&packet, 60) {
            let track = fields(track);
            let name = block(&track, 3).map_or_else(|| text(&track, 2), |process| text(&fields(process), 6));
            tracks.push((number(&track, 1).unwrap(), name, block(&track, 8).is_some()));
            continue;
        }
        let (time, event) = (number(&packet, 8).unwrap(), fields(block(&packet, 11).unwrap()));
        let track = number(&event, 11).unwrap();
        assert!(tracks.iter().any(|(uuid, ..)| *uuid == track), "an event of an unknown track");
        match number(&event, 9).unwrap() {
            1 => {
                let bytes = number(&fields(block(&event, 4).unwrap()), 3).unwrap();
                assert!(
                    open.insert(track, (time, text(&event, 23), text(&event, 22), bytes)).is_none(),
                    "nested"
                );
            }
            2 => {
                let (start, name, kind, bytes) = open.remove(&track).unwrap();
                slices.push((track, start, time - start, name, kind, bytes));
            }
            4 => counted.entry(track).or_default().push((time, number(&event, 30).unwrap())),
            other => panic!("type {other}"),
        }
    }
    assert!(open.is_empty());
    let names: Vec<&str> = tracks.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(&names[..4], ["made up", "compute", "out to host", "live bytes"]);
    let mut expected: Vec<_> = report
        .slices
        .iter()
        .map(|slice| {
            let (name, kind) = (report.names.get(slice.name).to_owned(), slice.kind.name().to_owned());
            (slice.lane as u64 + 2, slice.start.0, slice.time.0, name, kind, slice.bytes.0)
        })
        .collect();
    expected.sort();
    slices.sort();
    assert_eq!(slices, expected);
    let (all, _, is_counter) = tracks.iter().find(|(_, name, _)| name == "live bytes").unwrap();
    assert!(is_counter);
    let most = counted[all].iter().map(|(_, live)| *live).max();
    assert_eq!(most, report.live().iter().map(|live| live.0).max());
    assert!(counted[all].is_sorted_by_key(|(time, _)| *time));
    assert_eq!(counted.len(), 1 + report.live_by_role().len());
}

#[test]
fn chrome_events_have_the_slices_and_the_sums_of_roles() {
    let report = report(200, 5);
    let trace = chrome_trace(&report);
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let slices = of("X");
    assert_eq!(slices.len(), report.slices.len());
    for (event, slice) in slices.iter().zip(&report.slices) {
        assert_eq!(event["name"], report.names.get(slice.name));
        assert!((event["ts"].as_f64().unwrap() * 1e3 - slice.start.0 as f64).abs() < 0.5);
        assert!((event["dur"].as_f64().unwrap() * 1e3 - slice.time.0 as f64).abs() < 0.5);
        assert_eq!(event["tid"], slice.lane + 1);
    }
    let live = report.live();
    for event in of("C") {
        let at =
            usize::try_from(event["ts"].to_string().trim_end_matches(".0").parse::<u64>().unwrap()).unwrap();
        let sum: u64 = event["args"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(sum, live[at].0, "at {at} µs");
    }
    assert_eq!(of("M").len(), 1 + report.lanes.len());
}

#[test]
fn a_snapshot_has_each_stay_as_an_allocation_at_its_address() {
    let mut report = report(300, 6);
    // Two banks, and stays without a place.
    report.stays[3].place = Some(Place { bank: 1, offset: Bytes(4096) });
    let snapshot = read(&memory_viz(&report)).unwrap();
    assert_eq!(snapshot.segments.len(), 2);
    let events = &snapshot.history[0];
    let allocs: Vec<_> = events.iter().filter(|event| event.action == Action::Alloc).collect();
    let frees = events.iter().filter(|event| event.action == Action::FreeCompleted).count();
    assert_eq!(allocs.len(), report.stays.len());
    assert_eq!(frees, report.stays.iter().filter(|stay| stay.until < report.instants).count());
    for (event, stay) in allocs.iter().zip(&report.stays) {
        let place = stay.place.unwrap();
        let segment = &snapshot.segments[usize::from(place.bank)];
        assert_eq!((event.address, event.size), (segment.address + place.offset.0, stay.size));
        let function = &snapshot.frames_of(event.stack).next().unwrap().function;
        assert!(function.starts_with(report.names.get(stay.name)), "{function}");
    }
    for segment in &snapshot.segments {
        let mut next = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, next);
            next += block.size.0;
        }
        assert_eq!(next, segment.address + segment.size.0);
    }
    let held = |state: BlockState| {
        snapshot.segments.iter().flat_map(|s| &s.blocks).filter(move |b| b.state == state)
    };
    assert!(held(BlockState::Allocated).count() > 0);
    for stay in &mut report.stays {
        stay.place = None;
    }
    let unplaced = read(&memory_viz(&report)).unwrap();
    assert_eq!(unplaced.segments[0].size, report.stays.iter().map(|stay| stay.size).sum::<Bytes>());
}
