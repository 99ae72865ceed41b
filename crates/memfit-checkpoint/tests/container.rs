//! What goes into a checkpoint comes out; what is damaged is refused by name; a base is the right one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Cursor;

use memfit_checkpoint::{
    CHUNK, Error, How, Reader, Rules, Safetensors, Source, Summary, digest, unpack, write,
};
use serde_json::{Value, json};

mod common;
use common::{Draw, bytes_of, file, floats, weights};

type Base<'a> = Option<&'a [u8]>;

fn source(bytes: &[u8]) -> Box<dyn Source + '_> {
    if bytes.starts_with(b"memfitck") {
        Box::new(Reader::open(Cursor::new(bytes), None).unwrap())
    } else {
        Box::new(Safetensors::open(Cursor::new(bytes)).unwrap())
    }
}

fn pack(plain: &[u8], base: Base<'_>, rules: &Rules) -> (Vec<u8>, Summary) {
    let mut packed = Vec::new();
    let mut base = base.map(source);
    let mut input = source(plain);
    let base = base.as_mut().map(|base| &mut **base as &mut dyn Source);
    let summary = write(&mut *input, base, rules, &mut packed, &mut |_| ()).unwrap();
    assert_eq!(summary.bytes, packed.len() as u64);
    (packed, summary)
}

fn read(packed: &[u8], base: Base<'_>) -> Result<Vec<u8>, Error> {
    let mut reader = Reader::open(Cursor::new(packed), base.map(source))?;
    let mut plain = Vec::new();
    unpack(&mut reader, &mut plain, &mut |_| ())?;
    Ok(plain)
}

fn verify(packed: &[u8]) -> Result<(), Error> {
    Reader::open(Cursor::new(packed), None)?.verify(&mut |_| ())
}

/// A file with every type, odd shapes, metadata, spaces in its header and an order of its own.
fn everything(seed: u64) -> Vec<u8> {
    let mut draw = Draw(seed);
    let types = [
        ("BOOL", 1),
        ("U8", 1),
        ("I8", 1),
        ("F8_E5M2", 1),
        ("F8_E4M3", 1),
        ("F8_E8M0", 1),
        ("I16", 2),
        ("U16", 2),
        ("F16", 2),
        ("BF16", 2),
        ("I32", 4),
        ("U32", 4),
        ("F32", 4),
        ("C64", 8),
        ("F64", 8),
        ("I64", 8),
        ("U64", 8),
    ];
    let mut tensors: Vec<(String, &str, Vec<usize>, Vec<u8>)> = Vec::new();
    for (at, (dtype, size)) in types.into_iter().enumerate() {
        for shape in [vec![], vec![7, 3], vec![0, 5], vec![64]] {
            let count: usize = shape.iter().product();
            let name = format!("{:02}.{dtype}\u{1F600}\"{}", (at * 7) % 17, shape.len() * 10 + count);
            tensors.push((name, dtype, shape, (0..count * size).map(|_| draw.byte()).collect()));
        }
    }
    let named: Vec<_> =
        tensors.iter().map(|(name, dtype, shape, data)| (&name[..], *dtype, &shape[..], &data[..])).collect();
    file(&named, json!({ "format": "pt", "what": "a \"test\"\n" }), "  \n")
}

#[test]
fn every_type_comes_back_to_the_byte() {
    for seed in 0..20 {
        let plain = everything(seed);
        let (packed, _) = pack(&plain, None, &Rules::default());
        assert!(read(&packed, None).unwrap() == plain);
        verify(&packed).unwrap();
        // Against a base that has some of the tensors only, and others.
        let other = everything(seed + 1);
        let (packed, summary) = pack(&other, Some(&plain), &Rules::default());
        assert!(read(&packed, Some(&plain)).unwrap() == other);
        assert_eq!(summary.digest, digest(&mut *source(&other)).unwrap());
    }
}

#[test]
fn tensors_of_several_pieces_come_back() {
    let mut draw = Draw(1);
    let values = weights(&mut draw, CHUNK / 4 * 2 + 3);
    let moved: Vec<f32> = values.iter().map(|value| value - 1e-4 * value.abs()).collect();
    let [plain, new] = [&values, &moved]
        .map(|values| file(&[("w", "F32", &[values.len()], &bytes_of(values))], Value::Null, ""));
    let (packed, full) = pack(&plain, None, &Rules::default());
    assert!(full.bytes as f64 * 1.15 < full.plain_bytes as f64, "{} of {}", full.bytes, full.plain_bytes);
    assert!(read(&packed, None).unwrap() == plain);
    let (packed, changed) = pack(&new, Some(&plain), &Rules::default());
    assert_eq!(changed.rows[0].codec, "delta");
    assert!(changed.bytes * 4 < full.bytes * 3, "{} and {}", changed.bytes, full.bytes);
    assert!(read(&packed, Some(&plain)).unwrap() == new);
    // A base that's packed itself.
    let (base, _) = pack(&plain, None, &Rules::default());
    assert!(read(&packed, Some(&base)).unwrap() == new);
}

#[test]
fn what_did_not_change_takes_nothing() {
    let plain = file(&[("w", "BF16", &[50_000], &[7; 100_000])], Value::Null, "");
    let (packed, summary) = pack(&plain, Some(&plain), &Rules::default());
    assert!(summary.bytes < 1000, "{}", summary.bytes);
    assert!(read(&packed, Some(&plain)).unwrap() == plain);
}

fn one(values: &[f32]) -> Vec<u8> {
    file(&[("layer.w", "F32", &[values.len()], &bytes_of(values))], Value::Null, "")
}

#[test]
fn only_the_right_base_will_do() {
    let mut draw = Draw(3);
    let (old, new, other) = (weights(&mut draw, 1000), weights(&mut draw, 1000), weights(&mut draw, 1000));
    let near: Vec<f32> = old.iter().zip(&new).map(|(old, new)| old + 1e-4 * new).collect();
    let (packed, _) = pack(&one(&near), Some(&one(&old)), &Rules::default());
    assert!(read(&packed, Some(&one(&old))).unwrap() == one(&near));
    let wrong = read(&packed, Some(&one(&other))).unwrap_err();
    let wanted = digest(&mut *source(&one(&old))).unwrap().to_string();
    assert!(
        matches!(&wrong, Error::OtherBase { tensor, digest } if tensor == "layer.w" && *digest == wanted),
        "{wrong}"
    );
    assert!(matches!(read(&packed, None).unwrap_err(), Error::NoBase { digest } if digest == wanted));
    for shape in [&[999][..], &[10, 100]] {
        let count = shape.iter().product();
        let base = file(&[("layer.w", "F32", shape, &bytes_of(&old[..count]))], Value::Null, "");
        assert!(matches!(read(&packed, Some(&base)), Err(Error::OtherBase { .. })));
    }
    let renamed = file(&[("w", "F32", &[1000], &bytes_of(&old))], Value::Null, "");
    assert!(matches!(read(&packed, Some(&renamed)), Err(Error::OtherBase { .. })));
    // A base that is damaged itself is named as such.
    let (mut base, _) = pack(&one(&old), None, &Rules::default());
    base[40] ^= 1;
    let error = read(&packed, Some(&base)).unwrap_err();
    assert!(matches!(&error, Error::Base(inner) if matches!(**inner, Error::Damaged { .. })), "{error}");
    // Without its base it can be verified all the same.
    verify(&packed).unwrap();
}

/// Which bytes of a packed file belong to which tensor.
fn owners(packed: &[u8]) -> BTreeMap<usize, String> {
    let reader = Reader::open(Cursor::new(packed), None).unwrap();
    let (mut at, mut owners) = (16, BTreeMap::new());
    for row in reader.rows() {
        for _ in 0..row.bytes {
            owners.insert(at, row.name.clone());
            at += 1;
        }
    }
    owners
}

#[test]
fn every_damaged_byte_is_refused_by_name() {
    let mut draw = Draw(5);
    let values = weights(&mut draw, 300);
    let sparse: Vec<f32> = values.iter().map(|x| if *x > 0.0 { *x } else { 0.0 }).collect();
    let plain = file(
        &[
            ("a", "F32", &[300], &bytes_of(&values)),
            ("b", "I64", &[5], &[1; 40]),
            ("c", "F32", &[300], &bytes_of(&sparse)),
        ],
        json!({ "step": "7" }),
        "",
    );
    let lossy = Rules {
        others: How::Bounded { bound: 1e-3 },
        named: [("c".into(), How::Deepsz { bound: 1e-3 })].into(),
    };
    for rules in [Rules::default(), Rules::all(How::Kmeans { clusters: 8 }), lossy] {
        let (packed, _) = pack(&plain, None, &rules);
        let owners = owners(&packed);
        for at in 0..packed.len() {
            for flip in [1, 0x80, 0xff] {
                let mut broken = packed.clone();
                broken[at] ^= flip;
                for error in [verify(&broken).unwrap_err(), read(&broken, None).unwrap_err()] {
                    let named = match &error {
                        Error::Damaged { tensor, .. } => Some(tensor),
                        _ => None,
                    };
                    assert_eq!(named, owners.get(&at), "byte {at}: {error}");
                }
            }
            assert!(verify(&packed[..at]).is_err() && read(&packed[..at], None).is_err(), "{at} bytes");
        }
        assert!(verify(&[&packed[..], &[0]].concat()).is_err());
    }
}

/// A file with another list, and digests that are right for it.
fn with_list(packed: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let end = packed.len() - 48;
    let length = u64::from_le_bytes(packed[end + 32..end + 40].try_into().unwrap());
    let start = end - usize::try_from(length).unwrap();
    let mut list: Value = serde_json::from_slice(&packed[start..end]).unwrap();
    change(&mut list);
    let text = list.to_string();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&packed[..16]).update(text.as_bytes());
    let digest = *hasher.finalize().as_bytes();
    [&packed[..start], text.as_bytes(), &digest, &(text.len() as u64).to_le_bytes(), b"memfitce"].concat()
}

#[test]
fn what_a_list_can_not_say_is_refused() {
    let (packed, _) = pack(&one(&[1.0, 2.0]), None, &Rules::default());
    verify(&with_list(&packed, |_| ())).unwrap();
    let hash = "00".repeat(32);
    type Change<'a> = Box<dyn FnOnce(&mut Value) + 'a>;
    let changes: Vec<(&str, Change<'_>)> = vec![
        ("a key of a later version", Box::new(|list| list["more"] = json!(1))),
        ("another key of a tensor", Box::new(|list| list["tensors"][0]["more"] = json!(1))),
        ("an unknown codec", Box::new(|list| list["tensors"][0]["codec"] = json!("magic"))),
        ("another name", Box::new(|list| list["tensors"][0]["name"] = json!("../../etc/passwd"))),
        ("more bytes", Box::new(|list| list["tensors"][0]["bytes"] = json!(1u64 << 40))),
        ("fewer bytes", Box::new(|list| list["tensors"][0]["bytes"] = json!(1))),
        ("no tensors", Box::new(|list| list["tensors"] = json!([]))),
        ("a base that is not needed", Box::new(|list| list["tensors"][0]["base"] = json!(hash))),
        ("a difference without a base", Box::new(|list| list["tensors"][0]["codec"] = json!("delta"))),
        ("capital letters", Box::new(|list| list["tensors"][0]["plain"] = json!("AA".repeat(32)))),
        (
            "a shape of exabytes",
            Box::new(|list| {
                list["header"] = json!(
                    r#"{"layer.w":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4611686018427387904]}}"#
                );
            }),
        ),
        ("a header that is none", Box::new(|list| list["header"] = json!("[]"))),
    ];
    for (what, change) in changes {
        let broken = with_list(&packed, change);
        assert!(matches!(verify(&broken), Err(Error::Index(_))), "{what}: {:?}", verify(&broken));
    }
    let mut later = packed.clone();
    later[8] = 2;
    assert!(matches!(verify(&later), Err(Error::Version { found: 2 })));
    assert!(matches!(verify(b"{}"), Err(Error::Unknown(_))));
}

fn largest_error(one: &[u8], other: &[u8]) -> f64 {
    let far = |(x, y): (&f32, &f32)| (f64::from(*x) - f64::from(*y)).abs();
    floats(one).iter().zip(&floats(other)).map(far).fold(0.0, f64::max)
}

/// Goal Z9: each version is a difference to what was read back of the one before it.
#[test]
fn a_hundred_lossy_differences_stay_within_the_bound() {
    let mut draw = Draw(11);
    let bound = 1e-4;
    let mut values = weights(&mut draw, 5000);
    let mut base = one(&values);
    let mut worst = 0.0f64;
    for _ in 0..100 {
        for value in &mut values {
            *value += (draw.unit() - 0.5) * 1e-3;
        }
        let new = one(&values);
        let (packed, summary) = pack(&new, Some(&base), &Rules::all(How::DeltaDnn { bound }));
        assert_eq!(summary.rows[0].codec, "delta-dnn");
        assert!(matches!(read(&packed, Some(&new)), Err(Error::OtherBase { .. })));
        base = read(&packed, Some(&base)).unwrap();
        assert_eq!(summary.digest, digest(&mut *source(&base)).unwrap());
        worst = worst.max(largest_error(&new, &base));
    }
    assert!(worst <= bound && worst > bound * 0.9, "{worst}");
}

#[test]
fn what_loses_something_keeps_its_word() {
    let mut draw = Draw(13);
    let mut values = weights(&mut draw, 3000);
    values.iter_mut().step_by(3).for_each(|value| *value = 0.0);
    values[..4].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-42]);
    let plain = one(&values);
    for (how, codec) in [
        (How::Bounded { bound: 1e-3 }, "bounded"),
        (How::DeltaDnn { bound: 1e-3 }, "bounded"),
        (How::Deepsz { bound: 1e-3 }, "deepsz"),
    ] {
        let (packed, summary) = pack(&plain, None, &Rules::all(how));
        assert_eq!((&summary.rows[0].codec[..], summary.rows[0].bound), (codec, Some(1e-3)));
        let back = floats(&read(&packed, None).unwrap());
        for (x, y) in values.iter().zip(&back) {
            assert!(x.to_bits() == y.to_bits() || (x - y).abs() <= 1e-3, "{x} became {y}");
        }
        let zeros = |values: &[f32]| values.iter().filter(|value| **value == 0.0).count();
        assert!(zeros(&back) >= zeros(&values));
    }
    let (packed, summary) = pack(&plain, None, &Rules::all(How::Kmeans { clusters: 16 }));
    let mut distinct: Vec<u32> = floats(&read(&packed, None).unwrap()).iter().map(|x| x.to_bits()).collect();
    distinct.sort_unstable();
    distinct.dedup();
    // And what is in no cluster.
    assert!(distinct.len() <= 16 + 3, "{}", distinct.len());
    assert!(summary.bytes * 4 < summary.plain_bytes, "{} of {}", summary.bytes, summary.plain_bytes);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let plain = one(&[1.0]);
    for how in [
        How::Bounded { bound: 0.0 },
        How::DeltaDnn { bound: f64::NAN },
        How::Kmeans { clusters: 0 },
        How::Kmeans { clusters: 257 },
    ] {
        let made = write(&mut *source(&plain), None, &Rules::all(how), &mut Vec::new(), &mut |_| ());
        assert!(matches!(made, Err(Error::Usage(_))));
    }
    for bytes in [&b""[..], b"1234567", &[255; 20], &plain[..plain.len() - 1], &[&plain[..], &[0]].concat()] {
        assert!(Safetensors::open(Cursor::new(bytes)).is_err());
    }
}

/// Files of version 1 are read for ever. See `corpus/checkpoints/README.md`.
#[test]
fn files_of_version_1_are_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/checkpoints");
    let load = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let base = load("base.safetensors");
    let mut seen = std::collections::BTreeSet::new();
    for name in ["packed", "changed", "lossy", "pruned", "clusters"] {
        let packed = load(&format!("{name}.mfc"));
        assert!(read(&packed, Some(&base)).unwrap() == load(&format!("{name}.safetensors")), "{name}");
        seen.extend(
            Reader::open(Cursor::new(&packed), None).unwrap().rows().iter().map(|row| row.codec.clone()),
        );
    }
    let all = ["bounded", "codebook", "deepsz", "delta", "delta-dnn", "raw", "shuffle", "split"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// Bytes of strangers: no panic, and what is taken is whole.
#[test]
fn no_bytes_make_it_panic() {
    let mut draw = Draw(17);
    let values = weights(&mut draw, 200);
    let plain = one(&values);
    let seeds =
        [Rules::default(), Rules::all(How::Bounded { bound: 1e-3 }), Rules::all(How::Deepsz { bound: 1e-3 })]
            .map(|rules| pack(&plain, None, &rules).0);
    let started = std::time::Instant::now();
    let mut refused = 0;
    while refused < 1000 || started.elapsed().as_millis() < 700 {
        let mut broken = seeds[draw.below(seeds.len())].clone();
        for _ in 0..=draw.below(3) {
            let at = draw.below(broken.len());
            match draw.below(4) {
                0 => broken[at] ^= 1 << draw.below(8),
                1 => broken.truncate(at.max(1)),
                2 => broken.insert(at, draw.byte()),
                _ => broken[at..].rotate_left(1),
            }
        }
        // Digests made right again, so that the readers behind them are reached too.
        let broken = resealed(broken);
        match read(&broken, None) {
            Ok(back) => assert_eq!(back.len(), plain.len()),
            Err(_) => refused += 1,
        }
    }
}

fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let Some(end) = bytes.len().checked_sub(48) else { return bytes };
    let length = u64::from_le_bytes(bytes[end + 32..end + 40].try_into().unwrap());
    let Some(start) = usize::try_from(length).ok().and_then(|length| end.checked_sub(length)) else {
        return bytes;
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..16]).update(&bytes[start..end]);
    let digest = *hasher.finalize().as_bytes();
    bytes[end..end + 32].copy_from_slice(&digest);
    bytes
}
