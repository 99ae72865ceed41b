//! Lists of buffers as CSV.

mod common;

use std::time::Instant;

use common::{Random, survives_every_flip_and_cut, survives_random_damage};
use memfit_formats::csv::{self, CsvBuffer};
use memfit_ir::Bytes;

const GOOD: &str = "\
size, upper,id,lower,offset,alignment
4,3,b1,0,,
8 ,9,\"b,2\",3, 64,512
0,9,=b3,9,,1
";

fn row(id: &str, lower: u64, upper: u64, size: u64) -> CsvBuffer {
    CsvBuffer { id: id.into(), lower, upper, size: Bytes(size), ..CsvBuffer::default() }
}

#[test]
fn columns_come_in_any_order_and_blanks_mean_none() {
    let expected = [
        row("b1", 0, 3, 4),
        CsvBuffer { pin: Some(Bytes(64)), align: Some(Bytes(512)), ..row("b,2", 3, 9, 8) },
        CsvBuffer { align: Some(Bytes(1)), ..row("=b3", 9, 9, 0) },
    ];
    for text in
        [GOOD.to_owned(), GOOD.replace('\n', "\r\n"), format!("\u{feff}{GOOD}"), GOOD.trim_end().to_owned()]
    {
        assert_eq!(csv::read(text.as_bytes()).unwrap(), expected, "{text:?}");
    }
}

#[test]
fn an_end_is_inclusive_as_in_minimalloc() {
    let buffers = csv::read(b"buffer_id,start,end,size\n0,3,8,16\n").unwrap();
    assert_eq!(buffers, [row("0", 3, 9, 16)]);
    assert_eq!(csv::read(b"buffer,begin,upper,size\n0,3,8,16\n").unwrap(), [row("0", 3, 8, 16)]);
}

#[test]
fn what_is_written_has_offsets_and_reads_back() {
    let buffers = csv::read(GOOD.as_bytes()).unwrap();
    let written = csv::write(&buffers, &[Bytes(0), Bytes(64)]);
    let expected = "id,lower,upper,size,alignment,offset\nb1,0,3,4,,0\n\"b,2\",3,9,8,512,64\n=b3,9,9,0,1,\n";
    assert_eq!(String::from_utf8(written.clone()).unwrap(), expected);
    let back = csv::read(&written).unwrap();
    assert_eq!(back[0], CsvBuffer { pin: Some(Bytes(0)), ..buffers[0].clone() });
    assert_eq!(back[1..], buffers[1..]);
    let plain = csv::write(&[row("a", 0, 1, 2)], &[Bytes(7)]);
    assert_eq!(plain, b"id,lower,upper,size,offset\na,0,1,2,7\n");
}

#[test]
fn damage_is_refused_without_a_panic() {
    survives_every_flip_and_cut(b"id,lower,upper,size,offset\n0,0,1029,192,\n\"1\",0,7,128,64\n", csv::read);
    survives_random_damage(GOOD.as_bytes(), 3, csv::read);
}

#[test]
fn a_million_rows_read_in_moments() {
    let mut random = Random(4);
    let mut text = String::from("id,lower,upper,size\n");
    for id in 0..1_000_000 {
        let lower = random.below(1 << 20);
        let upper = lower + random.below(1 << 10);
        text.push_str(&format!("{id},{lower},{upper},{}\n", random.below(1 << 30)));
    }
    let start = Instant::now();
    let buffers = csv::read(text.as_bytes()).unwrap();
    let (read, start) = (start.elapsed(), Instant::now());
    let written = csv::write(&buffers, &vec![Bytes(0); buffers.len()]);
    println!("{} bytes: read {read:?}, written {:?}", text.len(), start.elapsed());
    assert_eq!(csv::read(&written).unwrap().len(), 1_000_000);
    assert!(read.as_secs() < 10, "{read:?}");
}

#[test]
fn the_public_instances_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/placement");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("SKIPPED: the shared placement data is not here");
        return;
    };
    let mut count = 0;
    for path in
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "csv"))
    {
        let bytes = std::fs::read(&path).unwrap();
        let buffers = csv::read(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
        assert_eq!(buffers.len(), lines - 1, "{}", path.display());
        count += 1;
    }
    assert!(count >= 10, "{count} files");
}
