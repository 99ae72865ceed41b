//! A list of buffers as CSV: `id,lower,upper,size[,alignment][,offset]`, the format of MiniMalloc and idealloc.
//!
//! The first line names the columns, in any order. Lifetimes are half-open: a buffer is live in `[lower, upper)`.
//! As in MiniMalloc `begin` and `start` mean `lower`, `buffer` and `buffer_id` mean `id`, and `end` names the last
//! moment *inside* the lifetime, so that `upper` is one more (google/minimalloc, `src/converter.cc`). Its `gaps` are
//! refused: a buffer here is live without interruption. A number in the column `offset` pins the buffer there.

use ::csv::{ByteRecord, ReaderBuilder, WriterBuilder};
use memfit_ir::{Bytes, MAX_COUNT};

use crate::FormatError;
use crate::json::MAX_NAME;

/// One row: a buffer to place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvBuffer {
    /// Its name, each once; written back as given.
    pub id: String,
    /// First moment of its life, in whatever unit the file counts.
    pub lower: u64,
    /// First moment after its life; at least `lower`.
    pub upper: u64,
    /// Bytes.
    pub size: Bytes,
    /// Its offset is a multiple of this; `None` for what the arena demands of all.
    pub align: Option<Bytes>,
    /// The offset it must have.
    pub pin: Option<Bytes>,
}

/// Position of each column in a row.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    /// What is added to the column `upper`: 1 for an inclusive `end`.
    upper_addend: u64,
    size: usize,
    align: Option<usize>,
    pin: Option<usize>,
}

const HEADER: &str =
    "the first line names the columns: `id,lower,upper,size` and optionally `alignment,offset`";

/// Reads a list of buffers, in the order of the file.
///
/// # Errors
///
/// If a column is missing, unknown or there twice, a row has another number of fields, a number is not a whole number
/// below 2⁶⁴, a lifetime ends before it starts, an alignment is 0, an id is there twice, or all sizes together reach
/// 2⁶² bytes. The error names the line.
pub fn read(bytes: &[u8]) -> Result<Vec<CsvBuffer>, FormatError> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(bytes);
    let mut record = ByteRecord::new();
    if !reader.read_byte_record(&mut record).map_err(|error| refuse(&error))? {
        return Err(FormatError::new("", "the file is empty").hint(HEADER));
    }
    let columns = Columns::of(&record)?;
    let (mut buffers, mut lines, mut total) = (Vec::new(), Vec::new(), Bytes::ZERO);
    while reader.read_byte_record(&mut record).map_err(|error| refuse(&error))? {
        let line = record.position().map_or(0, ::csv::Position::line);
        let refuse = |message: String| FormatError::new(format!("line {line}"), message);
        if buffers.len() >= MAX_COUNT {
            return Err(refuse(format!("more than {MAX_COUNT} buffers")));
        }
        let buffer = columns.buffer(&record).map_err(refuse)?;
        total += buffer.size;
        if total.0 >= 1 << 62 {
            return Err(refuse("all sizes together reach 2^62 bytes".to_owned()));
        }
        buffers.push(buffer);
        lines.push(line);
    }
    check_ids(&buffers, &lines)?;
    Ok(buffers)
}

impl Columns {
    fn of(header: &ByteRecord) -> Result<Columns, FormatError> {
        let refuse = |message: String| FormatError::new("line 1", message).hint(HEADER);
        let mut found: [Option<usize>; 6] = [None; 6];
        let mut upper_addend = 0;
        for (at, name) in header.iter().enumerate() {
            let name = String::from_utf8_lossy(name);
            let short: String = name.trim().chars().take(100).collect();
            let column = match short.as_str() {
                "id" | "buffer" | "buffer_id" => 0,
                "lower" | "begin" | "start" => 1,
                "upper" => 2,
                "end" => {
                    upper_addend = 1;
                    2
                }
                "size" => 3,
                "alignment" => 4,
                "offset" => 5,
                "gaps" => {
                    let message = "column `gaps` is not supported: a buffer is live without interruption";
                    return Err(FormatError::new("line 1", message));
                }
                _ => return Err(refuse(format!("there is no column `{short}`"))),
            };
            if found[column].replace(at).is_some() {
                return Err(refuse(format!("column `{short}` means the same as one before it")));
            }
        }
        let needed = |column: usize, name: &str| {
            found[column].ok_or_else(|| refuse(format!("column `{name}` is missing")))
        };
        Ok(Columns {
            id: needed(0, "id")?,
            lower: needed(1, "lower")?,
            upper: needed(2, "upper")?,
            upper_addend,
            size: needed(3, "size")?,
            align: found[4],
            pin: found[5],
        })
    }

    fn buffer(&self, record: &ByteRecord) -> Result<CsvBuffer, String> {
        let needed =
            |column, name| number(record, column, name)?.ok_or_else(|| format!("`{name}` is missing"));
        let optional = |column: Option<usize>, name| match column {
            Some(column) => number(record, column, name).map(|found| found.map(Bytes)),
            None => Ok(None),
        };
        let id = record.get(self.id).unwrap_or_default();
        let id = std::str::from_utf8(id).map_err(|_| "`id` is not UTF-8 text".to_owned())?;
        if id.len() > MAX_NAME {
            return Err(format!("`id` is longer than {MAX_NAME} bytes"));
        }
        let (lower, last) = (needed(self.lower, "lower")?, needed(self.upper, "upper")?);
        let upper = last.checked_add(self.upper_addend).ok_or("`end` is not below 2^64 − 1")?;
        if upper < lower {
            return Err(format!("the lifetime ends at {upper}, before it starts at {lower}"));
        }
        let align = optional(self.align, "alignment")?;
        if align == Some(Bytes::ZERO) {
            return Err("`alignment` is 0: at least 1 is needed".to_owned());
        }
        Ok(CsvBuffer {
            id: id.to_owned(),
            lower,
            upper,
            size: Bytes(needed(self.size, "size")?),
            align,
            pin: optional(self.pin, "offset")?,
        })
    }
}

/// The number in a field, or `None` where the field is blank.
fn number(record: &ByteRecord, column: usize, name: &str) -> Result<Option<u64>, String> {
    let field = record.get(column).unwrap_or_default().trim_ascii();
    if field.is_empty() {
        return Ok(None);
    }
    let digits =
        std::str::from_utf8(field).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).map(Some).ok_or_else(|| {
        let text: String = String::from_utf8_lossy(field).chars().take(100).collect();
        format!("`{name}` is `{text}`: a whole number from 0 to 2^64 − 1 is expected")
    })
}

fn check_ids(buffers: &[CsvBuffer], lines: &[u64]) -> Result<(), FormatError> {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by(|&a, &b| buffers[a].id.cmp(&buffers[b].id)); // Stable: equal ids stay in the file's order.
    let twice =
        order.windows(2).filter(|pair| buffers[pair[0]].id == buffers[pair[1]].id).min_by_key(|pair| pair[1]);
    twice.map_or(Ok(()), |pair| {
        let id: String = buffers[pair[1]].id.chars().take(100).collect();
        let message = format!("id `{id}` is there already, in line {}", lines[pair[0]]);
        Err(FormatError::new(format!("line {}", lines[pair[1]]), message))
    })
}

fn refuse(error: &::csv::Error) -> FormatError {
    let place = error.position().map_or_else(String::new, |position| format!("line {}", position.line()));
    match error.kind() {
        ::csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            FormatError::new(place, format!("{len} fields, where the first line has {expected_len}"))
        }
        _ => FormatError::new(place, error.to_string()),
    }
}

/// Writes the rows in their order, with the column `offset` added: `offsets[i]`, in bytes, belongs to `buffers[i]`, and
/// is left blank where there is none. The column `alignment` is there if a row has one. Ids are quoted where the format
/// needs it and otherwise as they were given: whoever opens the file in a spreadsheet trusts its first author.
#[must_use]
pub fn write(buffers: &[CsvBuffer], offsets: &[Bytes]) -> Vec<u8> {
    let aligned = buffers.iter().any(|buffer| buffer.align.is_some());
    let mut writer = WriterBuilder::new().from_writer(Vec::with_capacity(buffers.len() * 40));
    let text = |number: Option<Bytes>| number.map_or_else(String::new, |number| number.0.to_string());
    let mut put = |id: &str, numbers: [&str; 5]| {
        let row = [id].into_iter().chain(numbers);
        // `alignment` is the fourth of the numbers.
        let row = row.enumerate().filter(|&(at, _)| aligned || at != 4).map(|(_, field)| field);
        let written = writer.write_record(row);
        debug_assert!(written.is_ok(), "a vector takes every row");
    };
    put("id", ["lower", "upper", "size", "alignment", "offset"]);
    for (at, buffer) in buffers.iter().enumerate() {
        let (lower, upper, size) =
            (buffer.lower.to_string(), buffer.upper.to_string(), buffer.size.0.to_string());
        put(&buffer.id, [&lower, &upper, &size, &text(buffer.align), &text(offsets.get(at).copied())]);
    }
    writer.into_inner().unwrap_or_default()
}
