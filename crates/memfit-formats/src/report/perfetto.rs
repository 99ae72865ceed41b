//! The report as a Perfetto trace: a track for each lane and link, a counter of live bytes for each role and for all.
//!
//! The wire format is Protocol Buffers, written by hand: the few fields of `perfetto.protos.Trace` that are needed, by their
//! numbers in `protos/perfetto/trace/` of Perfetto 50. A slice is a begin and an end on its track, and events of a track stand
//! in the order of their times.

use memfit_ir::Bytes;

use super::model::Report;

/// `Trace.packet`.
const PACKET: u32 = 1;
/// `TracePacket.timestamp`, `.trusted_packet_sequence_id`, `.track_event`, `.sequence_flags`, `.track_descriptor`,
/// `.timestamp_clock_id`.
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;
/// `TrackDescriptor.uuid`, `.name`, `.process`, `.parent_uuid`, `.counter`.
const UUID: u32 = 1;
const TRACK_NAME: u32 = 2;
const PROCESS: u32 = 3;
const PARENT: u32 = 5;
const COUNTER: u32 = 8;
/// `ProcessDescriptor.pid`, `.process_name`.
const PID: u32 = 1;
const PROCESS_NAME: u32 = 6;
/// `CounterDescriptor.unit`, and `UNIT_SIZE_BYTES` of it.
const UNIT: u32 = 3;
const SIZE_BYTES: u64 = 3;
/// `TrackEvent.debug_annotations`, `.type`, `.track_uuid`, `.categories`, `.name`, `.counter_value`.
const ANNOTATION: u32 = 4;
const TYPE: u32 = 9;
const TRACK: u32 = 11;
const CATEGORY: u32 = 22;
const EVENT_NAME: u32 = 23;
const COUNTER_VALUE: u32 = 30;
/// `TYPE_SLICE_BEGIN`, `TYPE_SLICE_END`, `TYPE_COUNTER`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNT: u64 = 4;
/// `DebugAnnotation.uint_value`, `.name`.
const UINT_VALUE: u32 = 3;
const ANNOTATION_NAME: u32 = 10;
/// `SEQ_INCREMENTAL_STATE_CLEARED`.
const CLEARED: u64 = 1;

/// The track that all others are parts of.
const ROOT: u64 = 1;
/// Tracks of lanes begin here, those of counters after them.
const FIRST: u64 = 2;

/// A trace file.
#[must_use]
pub fn perfetto(report: &Report) -> Vec<u8> {
    let mut trace = Message::default();
    let title = super::model::shown_name(&report.title);
    let process = Message::default().number(PID, 1).text(PROCESS_NAME, &title);
    let root = Message::default().number(UUID, ROOT).part(PROCESS, &process);
    trace.packet(Message::default().number(SEQUENCE_FLAGS, CLEARED).part(TRACK_DESCRIPTOR, &root));
    let mut track = FIRST;
    for lane in &report.lanes {
        let descriptor =
            Message::default().number(UUID, track).text(TRACK_NAME, &lane.name).number(PARENT, ROOT);
        trace.packet(Message::default().part(TRACK_DESCRIPTOR, &descriptor));
        track += 1;
    }
    slices(report, &mut trace);
    let all = report.live();
    let roles = report.live_by_role();
    let parts = roles.iter().map(|(role, live)| (format!("live bytes: {}", report.names.get(*role)), live));
    for (name, live) in std::iter::once(("live bytes".to_owned(), &all)).chain(parts) {
        let counter = Message::default().number(UNIT, SIZE_BYTES);
        let descriptor = Message::default().number(UUID, track).text(TRACK_NAME, &name).number(PARENT, ROOT);
        trace.packet(Message::default().part(TRACK_DESCRIPTOR, &descriptor.part(COUNTER, &counter)));
        count(report, track, live, &mut trace);
        track += 1;
    }
    trace.bytes
}

/// Begins and ends of all slices.
fn slices(report: &Report, trace: &mut Message) {
    let mut order: Vec<usize> = (0..report.slices.len()).collect();
    order.sort_by_key(|&index| (report.slices[index].lane, report.slices[index].start, index));
    for index in order {
        let slice = &report.slices[index];
        let track = FIRST + slice.lane as u64;
        let bytes = Message::default().text(ANNOTATION_NAME, "bytes").number(UINT_VALUE, slice.bytes.0);
        let begin = Message::default()
            .part(ANNOTATION, &bytes)
            .number(TYPE, BEGIN)
            .number(TRACK, track)
            .text(CATEGORY, slice.kind.name())
            .text(EVENT_NAME, report.names.get(slice.name));
        let end = Message::default().number(TYPE, END).number(TRACK, track);
        let until = slice.start.0.saturating_add(slice.time.0);
        trace.packet(Message::default().number(TIMESTAMP, slice.start.0).part(TRACK_EVENT, &begin));
        trace.packet(Message::default().number(TIMESTAMP, until).part(TRACK_EVENT, &end));
    }
}

/// The changes of a counter.
fn count(report: &Report, track: u64, live: &[Bytes], trace: &mut Message) {
    let mut before = None;
    for (at, &bytes) in live.iter().enumerate() {
        if before == Some(bytes) {
            continue;
        }
        before = Some(bytes);
        let event =
            Message::default().number(TYPE, COUNT).number(TRACK, track).number(COUNTER_VALUE, bytes.0);
        trace.packet(Message::default().number(TIMESTAMP, report.time_of(at).0).part(TRACK_EVENT, &event));
    }
}

/// A message of Protocol Buffers in the making.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A field of a whole number: wire type 0.
    fn number(mut self, field: u32, number: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(number);
        self
    }

    /// A field of text: wire type 2.
    fn text(mut self, field: u32, text: &str) -> Message {
        self.block(field, text.as_bytes());
        self
    }

    /// A field that is a message: wire type 2.
    fn part(mut self, field: u32, part: &Message) -> Message {
        self.block(field, &part.bytes);
        self
    }

    /// Adds a packet to a trace; all of ours are one sequence.
    fn packet(&mut self, packet: Message) {
        let packet = packet.number(SEQUENCE, 1);
        self.block(PACKET, &packet.bytes);
    }

    fn block(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Seven bits a byte, the lowest first; the highest bit says that there are more.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push((number & 0x7f) as u8);
    }
}
