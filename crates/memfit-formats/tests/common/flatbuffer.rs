//! Writes TensorFlow Lite models for tests: parents before children, as the format wants it.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "these are helpers of tests"
)]

/// What a field of a table holds.
#[derive(Clone)]
pub(crate) enum Field {
    Byte(u8),
    Int(i32),
    Long(u64),
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    Text(String),
    Table(Vec<(usize, Field)>),
    Tables(Vec<Vec<(usize, Field)>>),
}

use Field::{Byte, Bytes, Int, Ints, Long, Table, Tables, Text};

/// A file whose root table has `fields`.
pub(crate) fn file(fields: &[(usize, Field)]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(b"TFL3");
    table(&mut out, 0, fields);
    out
}

fn pad(out: &mut Vec<u8>, align: usize, more: usize) {
    while !(out.len() + more).is_multiple_of(align) {
        out.push(0);
    }
}

/// Makes the offset at `at` point to the end.
fn point(out: &mut [u8], at: usize) {
    let distance = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&distance.to_le_bytes());
}

fn table(out: &mut Vec<u8>, at: usize, fields: &[(usize, Field)]) {
    let width = |field: &Field| match field {
        Byte(_) => 1,
        Long(_) => 8,
        _ => 4,
    };
    pad(out, 8, 0);
    let vtable = out.len();
    let places = fields.iter().map(|(id, _)| id + 1).max().unwrap_or(0);
    let mut words = vec![0u16; 2 + places];
    let mut end = 4usize;
    for (id, field) in fields {
        end = end.next_multiple_of(width(field));
        // Tables start four after a multiple of eight, so that longs are aligned.
        if width(field) == 8 && end.is_multiple_of(8) {
            end += 4;
        }
        words[2 + id] = end as u16;
        end += width(field);
    }
    (words[0], words[1]) = (2 * words.len() as u16, end as u16);
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    pad(out, 8, 4);
    let start = out.len();
    point(out, at);
    out.extend(((start - vtable) as i32).to_le_bytes());
    out.resize(start + end, 0);
    for (id, field) in fields {
        let slot = start + usize::from(words[2 + id]);
        match field {
            Byte(byte) => out[slot] = *byte,
            Int(int) => out[slot..slot + 4].copy_from_slice(&int.to_le_bytes()),
            Long(long) => out[slot..slot + 8].copy_from_slice(&long.to_le_bytes()),
            Bytes(bytes) => {
                pad(out, 16, 4);
                point(out, slot);
                out.extend((bytes.len() as u32).to_le_bytes());
                out.extend(bytes);
            }
            Ints(ints) => {
                pad(out, 4, 0);
                point(out, slot);
                out.extend((ints.len() as u32).to_le_bytes());
                out.extend(ints.iter().flat_map(|int| int.to_le_bytes()));
            }
            Text(text) => {
                pad(out, 4, 0);
                point(out, slot);
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.bytes().chain([0]));
            }
            Table(fields) => table(out, slot, fields),
            Tables(all) => {
                pad(out, 4, 0);
                point(out, slot);
                out.extend((all.len() as u32).to_le_bytes());
                let first = out.len();
                out.resize(first + 4 * all.len(), 0);
                for (index, fields) in all.iter().enumerate() {
                    table(out, first + 4 * index, fields);
                }
            }
        }
    }
}

/// A tensor: name, type, shape, buffer; and what more it has.
pub(crate) fn tensor(name: &str, kind: u8, shape: &[i32], buffer: i32) -> Vec<(usize, Field)> {
    vec![(0, Ints(shape.to_vec())), (1, Byte(kind)), (2, Int(buffer)), (3, Text(name.into()))]
}

/// A model: its operators, tensors, ops (operator, inputs, outputs), inputs and outputs. Buffer 1 has four bytes.
pub(crate) struct Model {
    pub(crate) codes: Vec<i32>,
    pub(crate) tensors: Vec<Vec<(usize, Field)>>,
    pub(crate) ops: Vec<(i32, Vec<i32>, Vec<i32>)>,
    pub(crate) inputs: Vec<i32>,
    pub(crate) outputs: Vec<i32>,
    pub(crate) metadata: Vec<(String, Vec<i32>)>,
    pub(crate) subgraphs: usize,
}

impl Model {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let code = |&code: &i32| vec![(0, Byte(code.min(127) as u8)), (3, Int(code))];
        let op = |(code, inputs, outputs): &(i32, Vec<i32>, Vec<i32>)| {
            vec![(0, Int(*code)), (1, Ints(inputs.clone())), (2, Ints(outputs.clone()))]
        };
        let main = vec![
            (0, Tables(self.tensors.clone())),
            (1, Ints(self.inputs.clone())),
            (2, Ints(self.outputs.clone())),
            (3, Tables(self.ops.iter().map(op).collect())),
            (4, Text("main".into())),
        ];
        let mut buffers = vec![vec![], vec![(0, Bytes(vec![1, 2, 3, 4]))]];
        let mut entries = Vec::new();
        for (name, words) in &self.metadata {
            entries.push(vec![(0, Text(name.clone())), (1, Int(buffers.len() as i32))]);
            buffers.push(vec![(0, Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect()))]);
        }
        file(&[
            (0, Int(3)),
            (1, Tables(self.codes.iter().map(code).collect())),
            (2, Tables(vec![main; self.subgraphs])),
            (3, Text("by hand".into())),
            (4, Tables(buffers)),
            (6, Tables(entries)),
        ])
    }
}
