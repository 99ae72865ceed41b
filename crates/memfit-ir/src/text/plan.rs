//! Reading the section `plan`.

use std::collections::BTreeMap;

use super::ParseError;
use super::cursor::{Cursor, Parsed, number_after};
use crate::{
    Buffer, BufferId, Content, CopyId, Digest, Graph, HostCopy, Layout, OpId, Place, Plan, Program, Step,
    StepId, Tier, ValueId,
};

/// A plan that is being read.
#[derive(Default)]
pub(super) struct PlanReader {
    digest: Option<Digest>,
    program: Program,
    buffers: BTreeMap<u32, (Buffer, Option<Place>)>,
    copies: BTreeMap<u32, HostCopy>,
    surplus: Vec<Place>,
    surplus_lanes: Vec<u16>,
    /// Length of the list of lanes, where the text says it.
    lanes: Option<usize>,
}

impl PlanReader {
    /// After `plan` or `plan blake3:…`.
    pub(super) fn new(cursor: &mut Cursor<'_>) -> Parsed<PlanReader> {
        cursor.word();
        let mut reader = PlanReader::default();
        if cursor.eat_word("blake3") {
            cursor.expect(":")?;
            let meaning = |hex: &str| format!("blake3:{hex}").parse().ok();
            reader.digest = Some(cursor.read("64 hexadecimal digits", meaning)?);
        }
        Ok(reader)
    }

    pub(super) fn finish(mut self, last: u32, graph: Option<&Graph>) -> Parsed<Plan> {
        let fail = |message: String| Err(ParseError { line: last, column: 1, message });
        let mut places = Vec::with_capacity(self.buffers.len());
        for (index, (id, (buffer, place))) in self.buffers.into_iter().enumerate() {
            if BufferId(id).index() != index {
                return fail(format!("`b{id}` is described in brackets, but `b{index}` is not"));
            }
            match place {
                Some(place) if places.len() == index => places.push(place),
                Some(_) => return fail(format!("`b{id}` has a place, but a buffer before it has none")),
                None => {}
            }
            self.program.buffers.push(buffer);
        }
        if !self.surplus.is_empty() && places.len() < self.program.buffers.len() {
            return fail("`surplus` places, but not every buffer has one".to_owned());
        }
        let steps = self.program.steps.len();
        if self.lanes.is_some_and(|lanes| lanes > steps) {
            return fail(format!("`lanes` of more than the {steps} steps"));
        }
        if let Some(lanes) = self.lanes {
            self.program.lanes.resize(lanes, 0);
        } else if !self.program.lanes.is_empty() || !self.surplus_lanes.is_empty() {
            self.program.lanes.resize(steps, 0);
        }
        places.append(&mut self.surplus);
        self.program.lanes.append(&mut self.surplus_lanes);
        for (index, (id, copy)) in self.copies.into_iter().enumerate() {
            if CopyId(id).index() != index {
                return fail(format!("`c{id}` is described in brackets, but `c{index}` is not"));
            }
            self.program.copies.push(copy);
        }
        let graph = self.digest.or_else(|| graph.map(Graph::digest)).unwrap_or_default();
        Ok(Plan { graph, program: self.program, layout: Layout { places } })
    }

    pub(super) fn statement(&mut self, cursor: &mut Cursor<'_>, lines: &mut Vec<u32>) -> Parsed<()> {
        if let Some(label) = number_after("s", cursor.peek_word()) {
            let index = self.program.steps.len();
            if StepId(label).index() != index {
                return cursor.expected(&format!("`s{index}`, which this step is"));
            }
            cursor.word();
            cursor.expect(":")?;
        }
        let verb = cursor.peek_word();
        const VERBS: [&str; 13] = [
            "resident", "parked", "unused", "surplus", "lanes", "compute", "free", "offload", "fetch",
            "discard", "await", "encode", "decode",
        ];
        if !VERBS.contains(&verb) {
            return cursor.expected(&format!("one of `{}`", VERBS.join("`, `")));
        }
        cursor.word();
        let step = match verb {
            "resident" | "parked" if !self.program.steps.is_empty() => {
                return cursor.fail(format!("`{verb}` after the first step"));
            }
            "resident" => {
                let buffer = self.buffer(cursor)?;
                self.program.resident.push(buffer);
                return Ok(());
            }
            "parked" => {
                let copy = self.copy(cursor)?;
                self.program.parked.push(copy);
                return Ok(());
            }
            "unused" if cursor.peek_word().starts_with('c') => return self.copy(cursor).map(drop),
            "unused" => return self.buffer(cursor).map(drop),
            "surplus" => return self.surplus(cursor),
            "lanes" => {
                self.lanes = Some(cursor.number("a number of steps")?);
                return Ok(());
            }
            "compute" => self.compute(cursor)?,
            "free" => Step::Free(self.buffer(cursor)?),
            "offload" => {
                let from = self.buffer(cursor)?;
                cursor.expect("->")?;
                Step::Offload { from, to: self.copy(cursor)? }
            }
            "fetch" => {
                let from = self.copy(cursor)?;
                cursor.expect("->")?;
                Step::Fetch { from, to: self.buffer(cursor)? }
            }
            "discard" => Step::Discard(self.copy(cursor)?),
            "await" => Step::Await(StepId(cursor.id("s", "a step such as `s0`")?)),
            _ => {
                let from = self.buffer(cursor)?;
                cursor.expect("->")?;
                let to = self.buffer(cursor)?;
                if verb == "encode" { Step::Encode { from, to } } else { Step::Decode { from, to } }
            }
        };
        self.program.steps.push(step);
        lines.push(cursor.line());
        if cursor.eat_word("on") {
            let lane = cursor.number("a lane")?;
            self.program.lanes.resize(self.program.steps.len() - 1, 0);
            self.program.lanes.push(lane);
        }
        Ok(())
    }

    /// `op3#1(b0, b1) -> b2[v2 +16 @0], b3[v3 +16 @16] work b4[work +64 @32]`
    fn compute(&mut self, cursor: &mut Cursor<'_>) -> Parsed<Step> {
        let op = OpId(cursor.id("op", "an op such as `op0`")?);
        let algorithm = if cursor.eat("#") { cursor.number("the number of an algorithm")? } else { 0 };
        cursor.expect("(")?;
        let mut reads = Vec::new();
        while !cursor.eat(")") {
            if !reads.is_empty() {
                cursor.expect(",")?;
            }
            reads.push(self.buffer(cursor)?);
        }
        let mut writes = Vec::new();
        if cursor.eat("->") {
            writes.push(self.buffer(cursor)?);
            while cursor.eat(",") {
                writes.push(self.buffer(cursor)?);
            }
        }
        let workspace = if cursor.eat_word("work") { Some(self.buffer(cursor)?) } else { None };
        Ok(self.program.compute(op, algorithm, reads, writes, workspace))
    }

    /// `b0`, where it is first met with what it is: `b0[v0 +16 @64 over b1]`.
    fn buffer(&mut self, cursor: &mut Cursor<'_>) -> Parsed<BufferId> {
        let id = cursor.id("b", "a buffer such as `b0`")?;
        if cursor.eat("[") {
            let content = content(cursor)?;
            cursor.expect("+")?;
            let size = cursor.bytes()?;
            let place = if cursor.eat("@") { Some(place(cursor)?) } else { None };
            let over =
                cursor.eat_word("over").then(|| cursor.id("b", "a buffer such as `b0`")).transpose()?;
            cursor.expect("]")?;
            let buffer = Buffer { content, size, over: over.map(BufferId) };
            if self.buffers.insert(id, (buffer, place)).is_some() {
                return cursor.fail(format!("`b{id}` is described in brackets twice"));
            }
        }
        Ok(BufferId(id))
    }

    /// `c0`, where it is first met with what it is: `c0[v0 +16]`, on a disk `c0[v0 +16 disk]`.
    fn copy(&mut self, cursor: &mut Cursor<'_>) -> Parsed<CopyId> {
        let id = cursor.id("c", "a host copy such as `c0`")?;
        if cursor.eat("[") {
            let content = content(cursor)?;
            cursor.expect("+")?;
            let size = cursor.bytes()?;
            let tier = if cursor.eat_word("disk") { Tier::Disk } else { Tier::Host };
            cursor.expect("]")?;
            if self.copies.insert(id, HostCopy { content, size, tier }).is_some() {
                return cursor.fail(format!("`c{id}` is described in brackets twice"));
            }
        }
        Ok(CopyId(id))
    }

    fn surplus(&mut self, cursor: &mut Cursor<'_>) -> Parsed<()> {
        while !cursor.is_done() {
            if cursor.eat("@") {
                self.surplus.push(place(cursor)?);
            } else if cursor.eat_word("on") {
                self.surplus_lanes.push(cursor.number("a lane")?);
            } else {
                return cursor.expected("`@` or `on`");
            }
        }
        Ok(())
    }
}

/// `v0`, `zvc v0` or `work`.
fn content(cursor: &mut Cursor<'_>) -> Parsed<Content> {
    if cursor.eat_word("work") {
        return Ok(Content::Workspace);
    }
    let codec = cursor.eat_codec();
    let value = ValueId(cursor.id("v", "`work`, a codec, or a value such as `v0`")?);
    Ok(codec.map_or(Content::Value(value), |codec| Content::Encoded(value, codec)))
}

/// `64`, or `1:64` in bank 1.
fn place(cursor: &mut Cursor<'_>) -> Parsed<Place> {
    let number = cursor.bytes()?;
    if !cursor.eat(":") {
        return Ok(Place { bank: 0, offset: number });
    }
    match u16::try_from(number.0) {
        Ok(bank) => Ok(Place { bank, offset: cursor.bytes()? }),
        Err(_) => cursor.fail(format!("bank {} of at most 65536", number.0)),
    }
}
