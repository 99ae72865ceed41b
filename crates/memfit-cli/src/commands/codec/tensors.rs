//! What codecs make of the tensors of a file.

use std::hint::black_box;
use std::path::Path;

use memfit::codec::Coder;
use memfit::formats::tensors::{self, Tensor};
use memfit::{Bytes, Failure, objects};
use serde_json::{Value, json};

use super::CodecArgs;
use super::speed::rate;
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, table};

/// Bytes that are dealt with at least to measure a speed.
const AT_LEAST: usize = 1 << 20;

/// What one codec makes of one tensor.
struct Row {
    coder: &'static dyn Coder,
    encoded: usize,
    /// Of words that are finite before and after; none where nothing may change.
    error: Option<Differences>,
    /// Plain bytes per second, to encoded and back.
    rates: [f64; 2],
}

/// How far what comes out is from what went in.
#[derive(Clone, Copy, Default)]
struct Differences {
    most: f64,
    rms: f64,
    /// The root of the mean square, over that of what went in.
    relative: f64,
    /// Words that were finite and are not, or the other way round.
    lost: usize,
}

pub(super) fn run(path: &Path, args: &CodecArgs, output: &Output) -> Result<(), Error> {
    let bytes = files::read(path)?;
    let tensors = tensors::read(&bytes).map_err(|error| files::about(path, Failure::Input(error)))?;
    let mut text = String::new();
    let mut objects = Vec::new();
    for tensor in &tensors {
        let all = || super::wanted(&args.codec);
        let rows: Vec<Row> =
            all().filter_map(|coder| row(coder, tensor, args.key).transpose()).collect::<Result<_, _>>()?;
        let skipped: Vec<&str> =
            all().map(Coder::name).filter(|name| !rows.iter().any(|row| row.coder.name() == *name)).collect();
        if output.json {
            objects.push(object(tensor, &rows, &skipped));
        } else {
            text += &report(tensor, rows, &skipped);
        }
    }
    if output.json {
        return output.object(&json!({
            "schema": objects::SCHEMA,
            "command": "codec",
            "status": "done",
            "file": path.display().to_string(),
            "tensors": objects,
        }));
    }
    output.print(if text.is_empty() { "no tensors\n" } else { &text })
}

/// What `coder` makes of `tensor`, if it's for such.
fn row(coder: &'static dyn Coder, tensor: &Tensor<'_>, key: u64) -> Result<Option<Row>, Error> {
    if coder.is_lossy() && !tensor.is_f32 {
        return Ok(None);
    }
    let size = tensor.bytes.len();
    let mut packed = vec![0; coder.bound(size)];
    let mut there = vec![0; size];
    let wrong = || Error::Write(anyhow::anyhow!("`{}` does not read what it wrote", coder.name()));
    let encoded = coder.encode_into(tensor.bytes, &mut packed, key).ok_or_else(wrong)?;
    coder.decode_into(&packed[..encoded], &mut there).map_err(|_| wrong())?;
    let error = coder.is_lossy().then(|| differences(tensor.bytes, &there));
    if error.is_none() && there != tensor.bytes {
        return Err(wrong());
    }
    let kept = packed[..encoded].to_vec();
    let encode = rate(size, AT_LEAST, || {
        black_box(coder.encode_into(black_box(tensor.bytes), &mut packed, key));
    });
    let decode = rate(size, AT_LEAST, || {
        black_box(coder.decode_into(black_box(&kept), &mut there).is_ok());
    });
    Ok(Some(Row { coder, encoded, error, rates: [encode, decode] }))
}

fn differences(was: &[u8], is: &[u8]) -> Differences {
    let values = |bytes: &[u8]| {
        let words = bytes.as_chunks().0.iter();
        words.map(|word| f64::from(f32::from_ne_bytes(*word))).collect::<Vec<f64>>()
    };
    let (mut most, mut errors, mut squares, mut count, mut lost) = (0.0f64, 0.0, 0.0, 0usize, 0);
    for (was, is) in values(was).into_iter().zip(values(is)) {
        if was.is_finite() && is.is_finite() {
            most = most.max((is - was).abs());
            errors += (is - was) * (is - was);
            squares += was * was;
            count += 1;
        } else if was.is_finite() != is.is_finite() {
            lost += 1;
        }
    }
    let rms = (errors / count.max(1) as f64).sqrt();
    let relative = if errors == 0.0 { 0.0 } else { (errors / squares).sqrt() };
    Differences { most, rms, relative, lost }
}

fn object(tensor: &Tensor<'_>, rows: &[Row], skipped: &[&str]) -> Value {
    let rows = rows.iter().map(|row| {
        let [encode, decode] = row.rates;
        let number = |of: fn(&Differences) -> f64| row.error.map_or(0.0, |error| of(&error));
        json!({
            "codec": row.coder.name(),
            "encoded_bytes": row.encoded,
            "ratio": ratio(tensor, row),
            "lossy": row.coder.is_lossy(),
            "max_error": number(|error| error.most),
            "rms_error": number(|error| error.rms),
            "relative_rms_error": number(|error| error.relative),
            "lost_words": row.error.map_or(0, |error| error.lost),
            "encode_bytes_per_second": encode,
            "decode_bytes_per_second": decode,
        })
    });
    json!({
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "bytes": tensor.bytes.len(),
        "codecs": rows.collect::<Vec<Value>>(),
        "skipped": skipped,
    })
}

fn ratio(tensor: &Tensor<'_>, row: &Row) -> f64 {
    tensor.bytes.len() as f64 / row.encoded.max(1) as f64
}

fn report(tensor: &Tensor<'_>, rows: Vec<Row>, skipped: &[&str]) -> String {
    let (name, dtype) = (clean(&tensor.name), clean(&tensor.dtype));
    let name = if name.is_empty() { "array".to_owned() } else { name };
    let mut text = format!("{name}: {dtype} {:?}, {}\n", tensor.shape, Bytes(tensor.bytes.len() as u64));
    let rows = rows.into_iter().map(|row| {
        let exact = || vec!["exact".to_owned(), String::new(), String::new()];
        let error = row.error.map_or_else(exact, |error| {
            vec![
                format!("{:.2e}", error.most),
                format!("{:.2e}", error.rms),
                format!("{:.2e}", error.relative),
            ]
        });
        let [encode, decode] = row.rates.map(|rate| format!("{:.2}", rate / 1e9));
        let lost = row.error.map_or(0, |error| error.lost);
        let lost = if lost == 0 { String::new() } else { lost.to_string() };
        let mut cells = vec![
            row.coder.name().to_owned(),
            Bytes(row.encoded as u64).to_string(),
            format!("{:.2}", ratio(tensor, &row)),
        ];
        cells.extend(error);
        cells.extend([lost, encode, decode]);
        cells
    });
    let head = [
        "codec",
        "encoded",
        "ratio",
        "largest error",
        "rms",
        "rms/rms",
        "lost words",
        "encode GB/s",
        "decode",
    ];
    text += &table(&head, &[], rows.collect());
    if !skipped.is_empty() {
        text += &format!("skipped, since they are for f32 alone: {}\n", skipped.join(", "));
    }
    text + "\n"
}
