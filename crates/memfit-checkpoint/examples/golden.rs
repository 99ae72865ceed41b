//! Makes the files of `corpus/checkpoints`: `cargo run -p memfit-checkpoint --example golden -- corpus/checkpoints`. Only for a new version of the
//! format: those of a version that has been released are kept as they are.
#![allow(clippy::unwrap_used, reason = "a program of the developers")]

use std::io::Cursor;
use std::path::Path;

use memfit_checkpoint::{How, Reader, Rules, Safetensors, Source, unpack, write};
use serde_json::{Value, json};

#[path = "../tests/common/mod.rs"]
mod common;
use common::{Draw, bytes_of, file, weights};

fn main() {
    let folder = std::env::args().nth(1).unwrap();
    let save = |name: &str, bytes: &[u8]| std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
    let mut draw = Draw(1);
    let w = weights(&mut draw, 300);
    let near: Vec<f32> = w.iter().map(|x| x + 1e-5).collect();
    let sparse: Vec<f32> = w.iter().map(|x| if *x > 0.01 { *x } else { 0.0 }).collect();
    let half: Vec<u8> = bytes_of(&w).as_chunks::<4>().0.iter().flat_map(|&[_, _, c, d]| [c, d]).collect();
    let counts: Vec<u8> = (1000..1040u64).flat_map(u64::to_le_bytes).collect();
    let noise: Vec<u8> = (0..40).map(|_| draw.byte()).collect();
    let full = |w: &[f32], meta: Value| {
        let rows: [(&str, &str, &[usize], &[u8]); 5] = [
            ("w", "F32", &[3, 100], &bytes_of(w)),
            ("half", "BF16", &[300], &half),
            ("counts", "I64", &[40], &counts),
            ("noise", "U8", &[40], &noise),
            ("empty", "F16", &[0], &[]),
        ];
        file(&rows, meta, "  ")
    };
    let base = full(&w, json!({ "format": "pt" }));
    let changed = full(&near, Value::Null);
    let two = file(
        &[("w", "F32", &[3, 100], &bytes_of(&near)), ("new", "F32", &[300], &bytes_of(&w))],
        Value::Null,
        "",
    );
    let pruned = file(&[("s", "F32", &[300], &bytes_of(&sparse))], Value::Null, "");
    save("base.safetensors", &base);
    let files = [
        ("packed", base.clone(), false, How::Lossless),
        ("changed", changed, true, How::Lossless),
        ("lossy", two, true, How::DeltaDnn { bound: 1e-6 }),
        ("pruned", pruned.clone(), false, How::Deepsz { bound: 1e-3 }),
        ("clusters", pruned, false, How::Kmeans { clusters: 8 }),
    ];
    for (name, plain, differs, how) in files {
        let open = |bytes| Safetensors::open(Cursor::new(bytes)).unwrap();
        let (mut packed, mut back) = (Vec::new(), Vec::new());
        let mut before = open(base.clone());
        let beside = differs.then_some(&mut before as &mut dyn Source);
        write(&mut open(plain), beside, &Rules::all(how), &mut packed, &mut |_| ()).unwrap();
        let before = differs.then(|| Box::new(open(base.clone())) as Box<dyn Source>);
        unpack(&mut Reader::open(Cursor::new(&packed), before).unwrap(), &mut back, &mut |_| ()).unwrap();
        save(&format!("{name}.mfc"), &packed);
        save(&format!("{name}.safetensors"), &back);
    }
}
