//! Logs of DTR's simulator `simrd`: one JSON object a line, a recorded PyTorch step as it arrived.
//!
//! Source: uwsampl/dtr-prototype (Kirisame et al., ICLR 2021). Names become numbers here: tensors are counted in the
//! order in which constants and calls make them. A `MUTATE` becomes a call with a fresh result of the storage's size
//! for each mutated argument, after which the old tensor is released, as the simulator has it. Everything before the
//! annotation `START` is skipped. Time and space are linear in the file.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, MAX_COUNT, Nanos};
use serde::Deserialize;

use crate::FormatError;
use crate::json::{MAX_NAME, Object};

/// What one call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogResult {
    /// Bytes; zero for a view.
    pub size: Bytes,
    /// Position of the argument that it is a view of; `None` for a storage of its own.
    pub view: Option<usize>,
}

/// One thing that the program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Made the next tensor out of nothing: a weight, a batch, a scalar. It can't be computed again.
    Constant {
        /// Bytes.
        size: Bytes,
    },
    /// Ran an op, which makes the next `results.len()` tensors.
    Call {
        /// Index in [`Log::kinds`].
        kind: usize,
        /// The tensors it reads; one may stand there twice.
        reads: Vec<u32>,
        /// What it makes.
        results: Vec<LogResult>,
        /// How long it took.
        time: Nanos,
    },
    /// Holds one more reference to a tensor.
    Share(u32),
    /// Holds one reference less. The first one is held from the start.
    Release(u32),
    /// From here on the program computes gradients.
    Backward,
}

/// A recorded step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// What happened, in order.
    pub events: Vec<LogEvent>,
    /// Names of ops.
    pub kinds: Vec<String>,
    /// The tensors that are still held at the end, each once, in the order in which their names first appear.
    pub held: Vec<u32>,
    /// Number of tensors.
    pub tensors: usize,
}

#[derive(Deserialize)]
#[serde(tag = "INSTRUCTION", rename_all = "SCREAMING_SNAKE_CASE")]
enum Line {
    Annotate {
        #[serde(rename = "ANNOTATION")]
        annotation: String,
    },
    Constant {
        #[serde(rename = "NAME")]
        name: String,
    },
    Memory {
        #[serde(rename = "NAME")]
        name: String,
        #[serde(rename = "MEMORY")]
        memory: String,
    },
    Alias {
        #[serde(rename = "NAME")]
        name: String,
        #[serde(rename = "ALIAS")]
        alias: String,
    },
    Call {
        #[serde(rename = "NAME")]
        name: String,
        #[serde(rename = "ARGS")]
        args: Vec<String>,
        #[serde(rename = "RESULT")]
        result: Vec<String>,
        #[serde(rename = "TIME")]
        time: String,
    },
    Mutate {
        #[serde(rename = "NAME")]
        name: String,
        #[serde(rename = "ARGS")]
        args: Vec<String>,
        #[serde(rename = "MUTATE")]
        mutate: Vec<usize>,
        #[serde(rename = "TIME")]
        time: String,
    },
    Copy {
        #[serde(rename = "DST")]
        dst: String,
        #[serde(rename = "SRC")]
        src: String,
    },
    CopyFrom {
        #[serde(rename = "DST")]
        dst: String,
        #[serde(rename = "SRC")]
        src: String,
    },
    Release {
        #[serde(rename = "NAME")]
        name: String,
    },
}

/// A constant or call whose sizes are still to come.
struct Open {
    /// Index of its event, its first tensor, and the names of what it makes.
    event: usize,
    first: u32,
    names: Vec<String>,
    /// How many results have their size, and whether the last one of them waits for its alias.
    sized: usize,
    wants_alias: bool,
}

#[derive(Default)]
struct Reader {
    log: Log,
    kinds: BTreeMap<String, usize>,
    names: BTreeMap<String, usize>,
    /// The tensor that each name stands for now, in order of first appearance.
    bound: Vec<u32>,
    references: Vec<u32>,
    /// For each tensor, the bytes of its storage.
    storage: Vec<Bytes>,
    total: Bytes,
    time: Nanos,
    open: Option<Open>,
}

/// Reads a log, plain or compressed with Zstandard.
///
/// # Errors
///
/// If a line is no instruction, names a tensor that does not exist, or releases one more often than it is held; if a
/// size or alias is missing; if all sizes together reach 2⁶² bytes, or all times 2⁶² ns. The error names the line.
pub fn read(bytes: &[u8]) -> Result<Log, FormatError> {
    let text = crate::zst::text(bytes)?;
    let mut reader = Reader::default();
    let mut started = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let refuse = |message: String| FormatError::new(format!("line {}", at + 1), message);
        if at >= MAX_COUNT {
            return Err(refuse(format!("more than {MAX_COUNT} lines")));
        }
        let Object(line): Object<Line> =
            serde_json::from_str(line).map_err(|error| refuse(format!("not an instruction: {error}")))?;
        if !started {
            started = matches!(&line, Line::Annotate { annotation } if annotation == "START");
            continue;
        }
        reader.line(line).map_err(refuse)?;
    }
    if !started {
        let hint = "a log of `simrd` begins with `{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}`";
        return Err(FormatError::new("", "there is no annotation `START`").hint(hint));
    }
    reader.finish().map_err(|message| FormatError::new("", message))
}

impl Reader {
    fn line(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Memory { name, memory } => return self.memory(&name, &memory),
            Line::Alias { name, alias } => return self.alias(&name, &alias),
            _ => self.closed()?,
        }
        match line {
            Line::Annotate { annotation } => {
                if annotation == "BACKWARD" {
                    self.log.events.push(LogEvent::Backward);
                }
            }
            Line::Constant { name } => {
                self.log.events.push(LogEvent::Constant { size: Bytes::ZERO });
                self.make(vec![name])?;
            }
            Line::Call { name, args, result, time } => {
                let reads = self.tensors(&args)?;
                let results = vec![LogResult { size: Bytes::ZERO, view: None }; result.len()];
                self.call(name, reads, results, &time)?;
                self.make(result)?;
            }
            Line::Mutate { name, args, mutate, time } => self.mutate(name, &args, &mutate, &time)?,
            Line::Copy { dst, src } => {
                let tensor = self.tensor(&src)?;
                self.bind(dst, tensor)?;
                self.share(tensor);
            }
            Line::CopyFrom { dst, src } => {
                let (old, new) = (self.tensor(&dst)?, self.tensor(&src)?);
                self.release(old)?;
                if self.references[new as usize] == 0 {
                    return Err(format!("`{src}` has been released"));
                }
                self.bind(dst, new)?;
                self.share(new);
            }
            Line::Release { name } => {
                if let Some(&at) = self.names.get(&name) {
                    self.release(self.bound[at])?;
                }
            }
            Line::Memory { .. } | Line::Alias { .. } => {}
        }
        Ok(())
    }

    fn call(
        &mut self,
        name: String,
        reads: Vec<u32>,
        results: Vec<LogResult>,
        time: &str,
    ) -> Result<(), String> {
        check_name(&name)?;
        let time = Nanos(number(time)?);
        self.time = self.time + time;
        if self.time.0 >= 1 << 62 {
            return Err("all times together reach 2^62 ns".to_owned());
        }
        let next = self.log.kinds.len();
        let kind = *self.kinds.entry(name.clone()).or_insert(next);
        if kind == next {
            self.log.kinds.push(name);
        }
        self.log.events.push(LogEvent::Call { kind, reads, results, time });
        Ok(())
    }

    fn mutate(&mut self, name: String, args: &[String], mutate: &[usize], time: &str) -> Result<(), String> {
        let reads = self.tensors(args)?;
        let mut old = Vec::with_capacity(mutate.len());
        for &position in mutate {
            let Some((&tensor, name)) = reads.get(position).zip(args.get(position)) else {
                return Err(format!("mutates argument {position} of {}", args.len()));
            };
            old.push((tensor, name.clone()));
        }
        let size =
            |&(tensor, _): &(u32, String)| LogResult { size: self.storage[tensor as usize], view: None };
        let results: Vec<LogResult> = old.iter().map(size).collect();
        self.call(name, reads, results.clone(), time)?;
        for ((tensor, name), result) in old.into_iter().zip(results) {
            let new = self.tensor_made(result.size)?;
            self.bind(name, new)?;
            self.release(tensor)?;
        }
        Ok(())
    }

    /// Waits for the sizes of what the last event makes.
    fn make(&mut self, names: Vec<String>) -> Result<(), String> {
        let first = u32::try_from(self.references.len()).unwrap_or(u32::MAX);
        for name in &names {
            let tensor = self.tensor_made(Bytes::ZERO)?;
            self.bind(name.clone(), tensor)?;
        }
        if !names.is_empty() {
            let event = self.log.events.len() - 1;
            self.open = Some(Open { event, first, names, sized: 0, wants_alias: false });
        }
        Ok(())
    }

    fn memory(&mut self, name: &str, memory: &str) -> Result<(), String> {
        let size = Bytes(number(memory)?);
        let Some(open) =
            self.open.as_mut().filter(|open| !open.wants_alias && open.names[open.sized] == name)
        else {
            return Err(format!("a size for `{name}`, which is not what waits for one"));
        };
        let tensor = open.first as usize + open.sized;
        open.sized += 1;
        self.storage[tensor] = size;
        match &mut self.log.events[open.event] {
            LogEvent::Constant { size: field } => {
                *field = size;
                self.open = None;
                self.grow(size)
            }
            LogEvent::Call { results, .. } => {
                results[open.sized - 1].size = size;
                open.wants_alias = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn alias(&mut self, name: &str, alias: &str) -> Result<(), String> {
        let Some(open) =
            self.open.as_mut().filter(|open| open.wants_alias && open.names[open.sized - 1] == name)
        else {
            return Err(format!("an alias for `{name}`, which is not what waits for one"));
        };
        open.wants_alias = false;
        let tensor = open.first as usize + open.sized - 1;
        let mut grown = Bytes::ZERO;
        if let LogEvent::Call { reads, results, .. } = &mut self.log.events[open.event] {
            let result = &mut results[open.sized - 1];
            if alias == "-1" {
                grown = result.size;
            } else {
                let position: usize =
                    alias.parse().map_err(|_| format!("alias `{alias}` is not a position"))?;
                let Some(&of) = reads.get(position) else {
                    return Err(format!("alias `{alias}` of a call with {} arguments", reads.len()));
                };
                *result = LogResult { size: Bytes::ZERO, view: Some(position) };
                self.storage[tensor] = self.storage[of as usize];
            }
        }
        if open.sized == open.names.len() {
            self.open = None;
        }
        self.grow(grown)
    }

    fn closed(&self) -> Result<(), String> {
        match &self.open {
            Some(open) => {
                let waiting = open.names.get(open.sized - usize::from(open.wants_alias));
                let what = if open.wants_alias { "alias" } else { "size" };
                Err(format!("the {what} of `{}` is missing", waiting.map_or("", String::as_str)))
            }
            None => Ok(()),
        }
    }

    fn grow(&mut self, size: Bytes) -> Result<(), String> {
        self.total += size;
        if self.total.0 >= 1 << 62 {
            return Err("all sizes together reach 2^62 bytes".to_owned());
        }
        Ok(())
    }

    fn tensor_made(&mut self, size: Bytes) -> Result<u32, String> {
        let tensor = u32::try_from(self.references.len()).ok().filter(|&count| (count as usize) < MAX_COUNT);
        let tensor = tensor.ok_or_else(|| format!("more than {MAX_COUNT} tensors"))?;
        self.references.push(1);
        self.storage.push(size);
        self.grow(size)?;
        Ok(tensor)
    }

    fn tensor(&self, name: &str) -> Result<u32, String> {
        let known = self.names.get(name).map(|&at| self.bound[at]);
        known.ok_or_else(|| format!("there is no tensor `{}`", name.chars().take(100).collect::<String>()))
    }

    fn tensors(&self, names: &[String]) -> Result<Vec<u32>, String> {
        names.iter().map(|name| self.tensor(name)).collect()
    }

    fn bind(&mut self, name: String, tensor: u32) -> Result<(), String> {
        check_name(&name)?;
        let next = self.bound.len();
        let at = *self.names.entry(name).or_insert(next);
        if at == next {
            self.bound.push(tensor)
        } else {
            self.bound[at] = tensor
        }
        Ok(())
    }

    fn share(&mut self, tensor: u32) {
        self.references[tensor as usize] += 1;
        self.log.events.push(LogEvent::Share(tensor));
    }

    fn release(&mut self, tensor: u32) -> Result<(), String> {
        let count = &mut self.references[tensor as usize];
        *count = count.checked_sub(1).ok_or("a tensor is released more often than it is held")?;
        self.log.events.push(LogEvent::Release(tensor));
        Ok(())
    }

    fn finish(mut self) -> Result<Log, String> {
        self.closed()?;
        self.log.tensors = self.references.len();
        let mut seen = vec![false; self.references.len()];
        for &tensor in &self.bound {
            let held = self.references[tensor as usize] > 0;
            if held && !std::mem::replace(&mut seen[tensor as usize], true) {
                self.log.held.push(tensor);
            }
        }
        Ok(self.log)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{}` is not a whole number", text.chars().take(40).collect::<String>()))
}

fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME { Err(format!("a name is longer than {MAX_NAME} bytes")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}\n";

    fn log(lines: &[&str]) -> Result<Log, String> {
        read((START.to_owned() + &lines.join("\n")).as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn views_and_mutation_are_resolved() {
        let read = log(&[
            r#"{"INSTRUCTION":"CONSTANT","NAME":"a"}"#,
            r#"{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"64"}"#,
            r#"{"INSTRUCTION":"CALL","NAME":"view","ARGS":["a"],"RESULT":["b"],"TIME":"5"}"#,
            r#"{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"64"}"#,
            r#"{"INSTRUCTION":"ALIAS","NAME":"b","ALIAS":"0"}"#,
            r#"{"INSTRUCTION":"COPY","DST":"c","SRC":"b"}"#,
            r#"{"INSTRUCTION":"MUTATE","NAME":"relu_","ARGS":["b","a"],"MUTATE":[0],"TIME":"7"}"#,
            r#"{"INSTRUCTION":"RELEASE","NAME":"a"}"#,
            r#"{"INSTRUCTION":"RELEASE","NAME":"unknown"}"#,
        ])
        .unwrap();
        let fresh = LogResult { size: Bytes(64), view: None };
        assert_eq!(
            read.events,
            [
                LogEvent::Constant { size: Bytes(64) },
                LogEvent::Call {
                    kind: 0,
                    reads: vec![0],
                    results: vec![LogResult { size: Bytes::ZERO, view: Some(0) }],
                    time: Nanos(5)
                },
                LogEvent::Share(1),
                LogEvent::Call { kind: 1, reads: vec![1, 0], results: vec![fresh], time: Nanos(7) },
                LogEvent::Release(1),
                LogEvent::Release(0),
            ]
        );
        assert_eq!((read.held, read.tensors), (vec![2, 1], 3));
    }

    #[test]
    fn bad_lines_are_refused_by_number() {
        let constant = r#"{"INSTRUCTION":"CONSTANT","NAME":"a"}"#;
        let size = r#"{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"64"}"#;
        let release = r#"{"INSTRUCTION":"RELEASE","NAME":"a"}"#;
        for (lines, message) in [
            (&[size][..], "line 2: a size for `a`, which is not what waits for one"),
            (&[constant, release], "line 3: the size of `a` is missing"),
            (&[constant], "the size of `a` is missing"),
            (&[constant, size, release, release], "line 5: a tensor is released more often than it is held"),
            (&[r#"{"INSTRUCTION":"COPY","DST":"b","SRC":"a"}"#], "line 2: there is no tensor `a`"),
            (
                &[constant, r#"{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"-4"}"#],
                "line 3: `-4` is not a whole number",
            ),
            (
                &[constant, r#"{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"4611686018427387904"}"#],
                "line 3: all sizes together reach 2^62 bytes",
            ),
            (
                &[r#"{"INSTRUCTION":"MUTATE","NAME":"f","ARGS":[],"MUTATE":[3],"TIME":"1"}"#],
                "line 2: mutates argument 3 of 0",
            ),
        ] {
            assert_eq!(log(lines).unwrap_err(), message);
        }
        assert!(log(&["[]"]).unwrap_err().starts_with("line 2: not an instruction"));
        assert_eq!(read(b"").unwrap_err().to_string(), "there is no annotation `START`");
    }
}
