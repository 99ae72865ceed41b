//! Python pickles of plain data: numbers, texts, lists, tuples and dicts. Nothing is ever constructed or called.
//!
//! Our own reader of the few opcodes that such data needs, since files here may be hostile and large: `serde-pickle`
//! 1.2 recurses once for each level of nesting, so that a megabyte of nested tuples overflows the stack and ends the
//! process, and it copies a memoised value wherever it's used, while a memory snapshot uses each stack frame
//! thousands of times. Here values are nodes of one table that refer to each other by number: reading is a loop, a
//! value that's used twice is there once, and a list that contains itself is harmless to whoever walks by a schema.
//!
//! Protocols 1 to 5. Whatever makes an object is refused by name. Reading is linear in the file.

use std::str::from_utf8;

use crate::FormatError;

/// The most values of a file.
const MAX_VALUES: usize = 1 << 26;

/// Number of a value in the table.
pub(crate) type Id = u32;

/// One value. Lists, tuples and dicts name their members by number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A floating-point number.
    Float(f64),
    /// A `str`.
    Text(&'a str),
    /// `bytes`, of which nothing is read here.
    Bytes,
    /// A list or a tuple.
    List(Vec<Id>),
    /// A dict, in the order it was filled.
    Dict(Vec<(Id, Id)>),
}

/// The values of a file.
#[derive(Clone, Debug)]
pub(crate) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Id,
}

/// Whether a file looks like a pickle of protocol 2 to 5.
pub(crate) fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

impl<'a> Pickle<'a> {
    /// The outermost value.
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    /// The value with a number; a number that isn't there is `None`.
    pub(crate) fn get(&self, id: Id) -> &Value<'a> {
        self.values.get(id as usize).unwrap_or(&Value::None)
    }

    /// What stands under `key` in a dict.
    pub(crate) fn item(&self, dict: Id, key: &str) -> Option<Id> {
        let Value::Dict(pairs) = self.get(dict) else { return None };
        // As in Python, a key that's set twice has its last value.
        pairs.iter().rev().find(|(name, _)| *self.get(*name) == Value::Text(key)).map(|(_, value)| *value)
    }
}

/// Reads a pickle.
///
/// # Errors
///
/// If the file is cut off or damaged, makes an object, or has too many values. The error names the byte.
pub(crate) fn read(bytes: &[u8]) -> Result<Pickle<'_>, FormatError> {
    let mut reader =
        Reader { bytes, at: 0, values: Vec::new(), stack: Vec::new(), marks: Vec::new(), memo: Vec::new() };
    loop {
        let at = reader.at;
        match reader.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok(Pickle { values: reader.values, root }),
            Err(message) => return Err(FormatError::new(format!("byte {at}"), message)),
        }
    }
}

/// A number in the memo that nothing was stored under.
const NOTHING: Id = Id::MAX;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Id>,
}

const CUT: &str = "the pickle is cut off";
const DAMAGED: &str = "the pickle is damaged";

impl<'a> Reader<'a> {
    /// Obeys one opcode; the last one yields the outermost value.
    fn step(&mut self) -> Result<Option<Id>, String> {
        let [op] = self.fixed()?;
        match op {
            0x80 => {
                let [protocol] = self.fixed()?;
                if protocol > 5 {
                    return Err(format!("pickle protocol {protocol} is not known: 1 to 5 are"));
                }
            }
            0x95 => drop(self.fixed::<8>()?), // FRAME: how much may be read ahead.
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => self.stack.push(self.top()?),
            b')' | b']' => self.push(Value::List(Vec::new()))?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            0x85..=0x87 => {
                let from = self.height_below(usize::from(op - 0x84))?;
                let items = self.stack.split_off(from);
                self.push(Value::List(items))?;
            }
            b't' | b'l' => {
                let items = self.pop_mark()?;
                self.push(Value::List(items))?;
            }
            b'd' => {
                let items = self.pop_mark()?;
                self.push(Value::Dict(pairs(&items)?))?;
            }
            b'a' => {
                let from = self.height_below(1)?;
                let items = self.stack.split_off(from);
                self.append(&items)?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.append(&items)?;
            }
            b's' => {
                let from = self.height_below(2)?;
                let items = self.stack.split_off(from);
                self.set(&items)?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set(&items)?;
            }
            b'q' => {
                let [index] = self.fixed()?;
                self.remember(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.fixed()?);
                self.remember(index)?;
            }
            0x94 => self.remember(u32::try_from(self.memo.len()).map_err(|_| DAMAGED)?)?,
            b'h' => {
                let [index] = self.fixed()?;
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.fixed()?);
                self.recall(index)?;
            }
            op => self.atom(op)?,
        }
        Ok(None)
    }

    /// Obeys an opcode that pushes a value without parts.
    fn atom(&mut self, op: u8) -> Result<(), String> {
        match op {
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'J' => {
                let number = i32::from_le_bytes(self.fixed()?);
                self.push(Value::Int(number.into()))?;
            }
            b'K' => {
                let number = u8::from_le_bytes(self.fixed()?);
                self.push(Value::Int(number.into()))?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.fixed()?);
                self.push(Value::Int(number.into()))?;
            }
            0x8a => {
                let [length] = self.fixed()?;
                self.long(length.into())?;
            }
            0x8b => {
                let length = u32::from_le_bytes(self.fixed()?);
                self.long(length.into())?;
            }
            b'G' => {
                let number = f64::from_be_bytes(self.fixed()?);
                self.push(Value::Float(number))?;
            }
            b'X' | b'T' | b'B' => {
                let length = u32::from_le_bytes(self.fixed()?);
                self.string(op, length.into())?;
            }
            0x8c | b'U' | b'C' => {
                let [length] = self.fixed()?;
                self.string(op, length.into())?;
            }
            0x8d | 0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.fixed()?);
                self.string(op, length)?;
            }
            other => return Err(refusal(other)),
        }
        Ok(())
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = usize::try_from(length).map_err(|_| CUT)?;
        let taken = rest.get(..length).ok_or(CUT)?;
        self.at += length;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N as u64)?;
        taken.try_into().map_err(|_| CUT.to_owned())
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), String> {
        if self.values.len() >= MAX_VALUES {
            return Err(format!("the pickle has more than {MAX_VALUES} values"));
        }
        let id = Id::try_from(self.values.len()).map_err(|_| DAMAGED)?;
        self.values.push(value);
        self.stack.push(id);
        Ok(())
    }

    /// A whole number in two's complement, its lowest byte first.
    fn long(&mut self, length: u64) -> Result<(), String> {
        let bytes = self.take(length)?;
        if bytes.len() > 16 {
            return Err(format!("a whole number of {} bytes: at most 16 are read", bytes.len()));
        }
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut whole = [if negative { 0xff } else { 0 }; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i128::from_le_bytes(whole)))
    }

    fn string(&mut self, op: u8, length: u64) -> Result<(), String> {
        let bytes = self.take(length)?;
        let is_text = matches!(op, b'X' | b'T' | 0x8c | b'U' | 0x8d);
        let value = if is_text { Value::Text(utf8(bytes)?) } else { Value::Bytes };
        self.push(value)
    }

    /// Height of the stack without its `count` topmost values, which must be above the last mark.
    fn height_below(&self, count: usize) -> Result<usize, String> {
        let floor = self.marks.last().copied().unwrap_or_default();
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= floor);
        from.ok_or_else(|| DAMAGED.to_owned())
    }

    fn top(&self) -> Result<Id, String> {
        let from = self.height_below(1)?;
        self.stack.get(from).copied().ok_or_else(|| DAMAGED.to_owned())
    }

    fn pop(&mut self) -> Result<Id, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// What is above the last mark.
    fn pop_mark(&mut self) -> Result<Vec<Id>, String> {
        let from = self.marks.pop().ok_or(DAMAGED)?;
        if from > self.stack.len() {
            return Err(DAMAGED.to_owned());
        }
        Ok(self.stack.split_off(from))
    }

    fn append(&mut self, items: &[Id]) -> Result<(), String> {
        let list = self.top()?;
        match self.values.get_mut(list as usize) {
            Some(Value::List(list)) => list.extend_from_slice(items),
            _ => return Err(DAMAGED.to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Id]) -> Result<(), String> {
        let dict = self.top()?;
        let pairs = pairs(items)?;
        match self.values.get_mut(dict as usize) {
            Some(Value::Dict(dict)) => dict.extend(pairs),
            _ => return Err(DAMAGED.to_owned()),
        }
        Ok(())
    }

    fn remember(&mut self, index: u32) -> Result<(), String> {
        let top = self.top()?;
        let index = index as usize;
        // Every entry takes bytes of the file, so the table is never larger than it.
        if index >= self.bytes.len() {
            return Err(DAMAGED.to_owned());
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, NOTHING);
        }
        self.memo[index] = top;
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<(), String> {
        let id = self.memo.get(index as usize).copied().filter(|id| *id != NOTHING);
        self.stack.push(id.ok_or(DAMAGED)?);
        Ok(())
    }
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>, String> {
    let (pairs, rest) = items.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    } else {
        Err(DAMAGED.into())
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())
}

/// Why an opcode is not obeyed.
fn refusal(op: u8) -> String {
    let makes = match op {
        b'c' | 0x93 => "looks up a name in a Python module",
        b'R' | 0x81 | 0x92 | b'i' | b'o' => "makes an object",
        b'b' => "changes an object",
        0x82..=0x84 | b'P' | b'Q' => "refers to something outside the file",
        0x8f..=0x91 => "makes a set",
        0x97 | 0x98 => "refers to a buffer outside the file",
        b'I' | b'L' | b'F' | b'S' | b'V' | b'p' | b'g' => "belongs to protocol 0, which is not read",
        _ => return format!("there is no pickle opcode {op:#04x}"),
    };
    format!("pickle opcode {op:#04x} {makes}: only plain data is read")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    /// `{"a": [1, -2, 2**40, 1.5, None, True], "b": ("x",)}` by `pickle.dumps`, protocols 1, 2 and 4.
    const SAME: [&[u8]; 3] = [
        b"}q\0(X\x01\0\0\0aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01G?\xf8\0\0\0\0\0\0N\x88eX\x01\0\0\0bq\x03(X\x01\0\0\0xq\x04tq\x05u.",
        b"\x80\x02}q\0(X\x01\0\0\0aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01G?\xf8\0\0\0\0\0\0N\x88eX\x01\0\0\0bq\x03X\x01\0\0\0xq\x04\x85q\x05u.",
        b"\x80\x04\x95\x2f\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xff\x8a\x06\0\0\0\0\0\x01G?\xf8\0\0\0\0\0\0N\x88e\x8c\x01b\x94\x8c\x01x\x94\x85\x94u.",
    ];

    #[test]
    fn every_protocol_says_the_same() {
        for bytes in SAME {
            let pickle = read(bytes).unwrap();
            let a = pickle.item(pickle.root(), "a").unwrap();
            let Value::List(items) = pickle.get(a) else { panic!("{a}") };
            let items: Vec<_> = items.iter().map(|&id| pickle.get(id).clone()).collect();
            let numbers = [Value::Int(1), Value::Int(-2), Value::Int(1 << 40)];
            assert_eq!(items[..3], numbers);
            assert_eq!(items[3..], [Value::Float(1.5), Value::None, Value::Bool(true)]);
            let b = pickle.item(pickle.root(), "b").unwrap();
            let Value::List(items) = pickle.get(b) else { panic!("{b}") };
            assert_eq!(*pickle.get(items[0]), Value::Text("x"));
            assert!(pickle.item(pickle.root(), "c").is_none());
        }
    }

    #[test]
    fn a_value_that_is_used_twice_is_there_once() {
        // l = []; [l, l]
        let pickle = read(b"\x80\x02]q\0(]q\x01h\x01e.").unwrap();
        let Value::List(items) = pickle.get(pickle.root()) else { panic!() };
        assert_eq!((items[0], pickle.values.len()), (items[1], 2));
        // l = []; l.append(l)
        let pickle = read(b"\x80\x02]q\0h\0a.").unwrap();
        assert_eq!(*pickle.get(pickle.root()), Value::List(vec![pickle.root()]));
    }

    #[test]
    fn a_million_levels_are_no_deeper_than_one() {
        let deep = [&b"\x80\x02)"[..], &vec![0x85; 1_000_000], b"."].concat();
        assert_eq!(read(&deep).unwrap().values.len(), 1_000_001);
        let marks = [&b"\x80\x02"[..], &vec![b'('; 1_000_000], b"."].concat();
        assert_eq!(message(&marks), "byte 1000002: the pickle is damaged");
    }

    #[test]
    fn objects_are_refused_by_name() {
        // os.system("true")
        let evil = b"\x80\x02cposix\nsystem\nq\0X\x04\0\0\0trueq\x01\x85q\x02Rq\x03.";
        assert_eq!(
            message(evil),
            "byte 2: pickle opcode 0x63 looks up a name in a Python module: only plain data is read"
        );
        for op in *b"R\x81\x92iob\x82\x83\x84PQ\x8f\x90\x91\x93\x97\x98ILFSVpg" {
            let message = message(&[0x80, 2, b'K', 1, op, 0, 0, 0, 0, 0, 0, 0, 0, b'.']);
            assert!(message.ends_with(": only plain data is read"), "{message}");
        }
        assert_eq!(message(b"\x80\x02\xff"), "byte 2: there is no pickle opcode 0xff");
        assert_eq!(message(b"\x80\x06N."), "byte 0: pickle protocol 6 is not known: 1 to 5 are");
    }

    #[test]
    fn lengths_are_not_believed() {
        assert_eq!(message(b"\x80\x02X\xff\xff\xff\xffab"), "byte 2: the pickle is cut off");
        assert_eq!(
            message(b"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xffab"),
            "byte 2: the pickle is cut off"
        );
        assert_eq!(message(b"\x80\x02Nr\xff\xff\xff\xff."), "byte 3: the pickle is damaged");
        assert_eq!(
            message(b"\x80\x02\x8a\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."),
            "byte 2: a whole number of 32 bytes: at most 16 are read"
        );
        for bytes in SAME {
            for end in 0..bytes.len() {
                assert!(read(&bytes[..end]).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for bytes in SAME {
            for at in 0..bytes.len() {
                for byte in 0..=255 {
                    let mut changed = bytes.to_vec();
                    changed[at] = byte;
                    drop(read(&changed));
                }
            }
        }
    }
}
