//! Codecs that plans name, and those that do the work, are the same.
#![allow(clippy::unwrap_used, reason = "a test may")]

use memfit::Bytes;
use memfit::codec::{CODERS, by_name};
use memfit::ir::{Codec, Dtype, Graph, GraphBuilder, Need, Role, ValueSpec};

/// A graph of one value.
fn graph(size: u64, density: Option<f32>) -> Graph {
    let mut builder = GraphBuilder::new("one");
    let spec = ValueSpec { size: Bytes(size), role: Role::Input, density, ..ValueSpec::default() };
    builder.value(spec).unwrap();
    builder.finish().unwrap()
}

#[test]
fn every_coder_is_a_codec_of_plans_with_the_same_sizes() {
    assert_eq!(Codec::ALL.len(), CODERS.len());
    for (coder, (codec, name)) in CODERS.iter().zip(Codec::ALL) {
        assert_eq!((coder.name(), Codec::by_name(coder.name())), (*name, Some(*codec)));
        assert_eq!(codec.name(), *name);
        // What `binarize` keeps is exact; who reads no more than that loses nothing.
        assert_eq!(codec.is_lossy(), coder.is_lossy() && *codec != Codec::Binarize, "{name}");
        for size in (0..3000).chain([4095, 4096, 8191, 8192, 8193, 1 << 20, (1 << 20) + 3]) {
            let bound = Bytes(coder.bound(size) as u64);
            assert_eq!(codec.bound(Bytes(size as u64)), bound, "{name} of {size}");
            assert_eq!(coder.fixed_size(size).is_none(), codec.is_variable(), "{name} of {size}");
        }
        assert!(codec.bound(Bytes(u64::MAX)) > Bytes::ZERO, "{name}");
    }
    assert!(by_name("zip").is_none() && Codec::by_name("zip").is_none() && Codec::by_name("").is_none());
}

#[test]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of a few KiB")]
fn what_is_as_dense_as_the_graph_says_fits_its_room() {
    for size in [0usize, 1, 3, 4, 7, 64, 1021, 1024, 4099, 9000] {
        for density in [0.0f32, 0.01, 0.26, 0.5, 0.99, 1.0] {
            let words = size.div_ceil(4);
            let filled = (f64::from(density) * words as f64).ceil() as usize;
            // The last words are the ones that are not zero: the one that is not whole among them.
            let data: Vec<u8> = (0..size).map(|at| u8::from(at / 4 >= words - filled)).collect();
            let graph = graph(size as u64, Some(density));
            let value = graph.value(graph.value_ids().next().unwrap());
            for (coder, (codec, name)) in CODERS.iter().zip(Codec::ALL) {
                let room = codec.room(&value).0 as usize;
                let packed = coder.encode(&data, usize::MAX, 7).unwrap();
                assert!(packed.len() <= room, "{name}: {} of {size} at {density}, room {room}", packed.len());
                if size.is_multiple_of(4) || !codec.is_variable() {
                    assert_eq!(packed.len(), room, "{name} of {size} at {density}");
                }
                assert_eq!(codec.room(&graph_of(size)), codec.bound(Bytes(size as u64)), "{name}");
            }
        }
    }
}

/// The value of a graph that says nothing of its density.
fn graph_of(size: usize) -> memfit::ir::Value<'static> {
    let graph: &'static Graph = Box::leak(Box::new(graph(size as u64, None)));
    graph.value(graph.value_ids().next().unwrap())
}

#[test]
fn codecs_that_know_numbers_know_singles() {
    for (codec, name) in Codec::ALL {
        let is_blind = matches!(codec, Codec::Zvc | Codec::Csr);
        for (dtype, _) in Dtype::ALL {
            assert_eq!(codec.suits(dtype), is_blind || dtype == Dtype::F32, "{name}");
        }
        assert_eq!(codec.keeps() == Need::Sign, *codec == Codec::Binarize, "{name}");
    }
}
