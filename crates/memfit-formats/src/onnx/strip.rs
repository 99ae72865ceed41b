//! Drops the weights from a serialized model before it is decoded.
//!
//! A planner needs the shape of a weight, not its numbers. This pass walks the protobuf wire format of the few
//! messages that tensors can hang from, copies everything but long payloads, and counts what it meets, so that
//! decoding takes memory in proportion to the graph and not to the weights, and a small file can't unfold to
//! a large one. Weights in the file are read over but never copied.

use crate::FormatError;

/// Payloads of tensors up to this many bytes are kept: they may say shapes. Longer ones are dropped.
const LONGEST_PAYLOAD: usize = 64 << 10;

/// The most nodes, attributes, tensors and declared values in one file.
const MAX_RECORDS: u64 = 4_000_000;

/// How deep branches and bodies may stand in each other. The decoder itself would refuse 33.
const MAX_NESTED: usize = 16;

/// The most operands of a node.
const MAX_OPERANDS: usize = 65_536;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Sparse,
    Tensor,
    /// Copied as it is.
    Leaf,
}

impl Message {
    /// The message in field `tag` of this message, if we care what's in it.
    fn child(self, tag: u64) -> Option<Message> {
        match (self, tag) {
            (Message::Model, 7) | (Message::Attribute, 6) => Some(Message::Graph),
            (Message::Model, 25) => Some(Message::Function),
            (Message::Graph, 1) | (Message::Function, 7) => Some(Message::Node),
            (Message::Graph, 5) | (Message::Attribute, 5) | (Message::Sparse, 1) => Some(Message::Tensor),
            (Message::Graph, 15) => Some(Message::Sparse),
            (Message::Graph, 11..=13) | (Message::Model, 8) => Some(Message::Leaf),
            (Message::Node, 5) | (Message::Function, 11) => Some(Message::Attribute),
            (Message::Node | Message::Function, 9) => Some(Message::Leaf),
            _ => None,
        }
    }

    /// Whether field `tag` is no part of the subset we read, or too long to be a shape.
    fn drops(self, tag: u64, length: usize) -> bool {
        match self {
            Message::Tensor => match tag {
                4 | 5 | 7 | 9 | 10 | 11 => length > LONGEST_PAYLOAD,
                1 | 8 => false,
                _ => true,
            },
            Message::Model => !matches!(tag, 7 | 8 | 25),
            Message::Attribute => matches!(tag, 10 | 11 | 13..=15 | 22 | 23),
            _ => false,
        }
    }
}

/// A copy of the serialized `ModelProto` in `bytes` without its long payloads.
///
/// # Errors
///
/// If the bytes are not in protobuf's wire format as far as they were walked, or there are too many records.
pub(super) fn strip(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut walker = Walker { bytes, records: 0, nested: 0 };
    let mut out = Vec::new();
    walker.copy(0, bytes.len(), Message::Model, &mut out)?;
    Ok(out)
}

struct Walker<'a> {
    bytes: &'a [u8],
    records: u64,
    /// Graphs around the field at hand.
    nested: usize,
}

impl Walker<'_> {
    /// Copies the fields in `[at, end)`, one message of kind `message`, to `out`. Depth is that of
    /// [`Message::child`]: five, and three for each graph within a graph.
    fn copy(
        &mut self,
        mut at: usize,
        end: usize,
        message: Message,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        if message == Message::Leaf {
            out.extend_from_slice(&self.bytes[at..end]);
            return Ok(());
        }
        let mut operands = 0;
        while at < end {
            let start = at;
            let key = self.varint(&mut at, end)?;
            let tag = key >> 3;
            let body = at;
            let length = match key & 7 {
                0 => {
                    self.varint(&mut at, end)?;
                    at - body
                }
                1 => 8,
                5 => 4,
                2 => {
                    let length = usize::try_from(self.varint(&mut at, end)?).unwrap_or(usize::MAX);
                    if length > end - at {
                        let left = end - at;
                        return Err(
                            self.broken(start, format!("a field of `{length}` bytes, `{left}` are left"))
                        );
                    }
                    operands += usize::from(message == Message::Node && tag <= 2);
                    if operands > MAX_OPERANDS {
                        return Err(
                            self.broken(start, format!("a node of more than {MAX_OPERANDS} operands"))
                        );
                    }
                    if !message.drops(tag, length) {
                        self.field(key, at, length, message.child(tag), out)?;
                    }
                    at += length;
                    continue;
                }
                other => {
                    return Err(self.broken(start, format!("wire type `{other}`, which ONNX does not use")));
                }
            };
            if length > end - body {
                return Err(
                    self.broken(start, format!("a field of `{length}` bytes, `{}` are left", end - body))
                );
            }
            at = body + length;
            out.extend_from_slice(&self.bytes[start..at]);
        }
        Ok(())
    }

    fn field(
        &mut self,
        key: u64,
        at: usize,
        length: usize,
        child: Option<Message>,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        write_varint(key, out);
        let Some(child) = child else {
            write_varint(length as u64, out);
            out.extend_from_slice(&self.bytes[at..at + length]);
            return Ok(());
        };
        self.records += 1;
        if self.records > MAX_RECORDS {
            return Err(self.broken(at, format!("more than {MAX_RECORDS} nodes, attributes and tensors")));
        }
        let graphs = usize::from(child == Message::Graph);
        self.nested += graphs;
        if self.nested > MAX_NESTED + 1 {
            return Err(self.broken(at, format!("branches and bodies more than {MAX_NESTED} deep")));
        }
        let mut inner = Vec::new();
        self.copy(at, at + length, child, &mut inner)?;
        self.nested -= graphs;
        write_varint(inner.len() as u64, out);
        out.extend_from_slice(&inner);
        Ok(())
    }

    fn varint(&self, at: &mut usize, end: usize) -> Result<u64, FormatError> {
        let start = *at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            if *at >= end {
                return Err(self.broken(start, "a number that is cut off".to_owned()));
            }
            let byte = self.bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.broken(start, "a number of more than 64 bits".to_owned()))
    }

    fn broken(&self, at: usize, what: String) -> FormatError {
        FormatError::new(format!("byte {at}"), format!("not an ONNX model, or a damaged one: {what}"))
            .hint("export the model again, or fetch it again")
    }
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::proto;
    use super::*;
    use prost::Message as _;

    #[test]
    fn long_payloads_go_and_the_rest_stays() {
        let tensor = |length: usize| proto::TensorProto {
            name: Some("w".into()),
            dims: vec![3, 4],
            data_type: Some(1),
            raw_data: Some(vec![7; length]),
            ..Default::default()
        };
        let node =
            proto::NodeProto { input: vec!["w".into()], op_type: Some("Relu".into()), ..Default::default() };
        let graph = |length| proto::GraphProto {
            initializer: vec![tensor(48), tensor(length)],
            node: vec![node.clone()],
            ..Default::default()
        };
        let model = |length| proto::ModelProto {
            ir_version: Some(8),
            graph: Some(graph(length)),
            ..Default::default()
        };
        let small = strip(&model(1 << 20).encode_to_vec()).unwrap();
        assert!(small.len() < 200, "{}", small.len());
        let mut expected = model(5);
        if let Some(graph) = &mut expected.graph {
            graph.initializer[1].raw_data = None;
        }
        expected.ir_version = Some(8);
        assert_eq!(proto::ModelProto::decode(&small[..]).unwrap(), expected);
    }

    #[test]
    fn what_is_not_protobuf_is_refused() {
        let message = |bytes: &[u8]| strip(bytes).unwrap_err().to_string();
        assert_eq!(
            message(&[0x3a, 9, 1]),
            "byte 0: not an ONNX model, or a damaged one: a field of `9` bytes, `1` are left"
        );
        assert!(message(&[0x08]).contains("cut off"));
        assert!(message(&[0xff; 11]).contains("64 bits"));
        assert!(message(b"{\"a\": 1}").starts_with("byte "));
    }
}
