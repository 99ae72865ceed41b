//! Node-link JSON of networkx, as Checkmate and MOCCASIN write their graphs: one output for each op.
//!
//! Two dialects. Checkmate (MLSys 2020): nodes by `id`, bytes in `cost_ram`, µs in `cost_cpu`, flag `backward`, links from
//! `source` to `target`; ascending `id` is the order. MOCCASIN's random graphs: nodes by `name`, memory in `out_cost`, time
//! in `duration`, links keyed `0` and `1`, the order in `graph.order`; their units count as bytes and µs. A node without
//! successors is a result. Time and space are linear in the file, apart from nodes with thousands of links.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Graph, GraphBuilder, MAX_COUNT, Nanos, OpSpec, Phase, Role, ValueId, ValueSpec};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::FormatError;
use crate::json::{MAX_NAME, Object};

/// The most links into one node: the builder compares operands pairwise.
const MAX_LINKS: usize = 1 << 14;

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    graph: Attributes,
    nodes: Vec<Node>,
    links: Vec<Link>,
}

#[derive(Default, Deserialize)]
struct Attributes {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    order: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    name: Option<Json>,
    #[serde(alias = "out_cost")]
    cost_ram: u64,
    #[serde(alias = "duration")]
    cost_cpu: u64,
    #[serde(default)]
    backward: bool,
}

#[derive(Deserialize)]
struct Link {
    #[serde(alias = "0")]
    source: u64,
    #[serde(alias = "1")]
    target: u64,
}

/// Whether plain JSON looks like a node-link graph of this form: it has its keys at the top.
#[must_use]
pub fn is_like(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| crate::json::has_keys(text, &["nodes", "links"]))
}

/// Reads a graph, plain or compressed with Zstandard.
///
/// # Errors
///
/// If a node has no or a second time the same number, a link names none, the order is no order of the nodes in which
/// every link points forward, or the graph is one that [`GraphBuilder`] refuses.
pub fn read(bytes: &[u8]) -> Result<Graph, FormatError> {
    let text = crate::zst::text(bytes)?;
    let Object(file): Object<File> =
        serde_json::from_str(&text).map_err(|error| FormatError::new("", error.to_string()))?;
    if file.nodes.len() >= MAX_COUNT {
        return Err(FormatError::new("nodes", format!("more than {MAX_COUNT} nodes")));
    }
    let mut numbered = BTreeMap::new();
    for (at, node) in file.nodes.iter().enumerate() {
        let refuse = |message: String| Err(FormatError::new(format!("nodes[{at}]"), message));
        let Some(number) = node.id.or_else(|| node.name.as_ref().and_then(Json::as_u64)) else {
            return refuse("there is no number, neither as `id` nor as `name`".to_owned());
        };
        if numbered.insert(number, at).is_some() {
            return refuse(format!("the number {number} is there twice"));
        }
    }
    let order: Vec<usize> = match &file.graph.order {
        Some(order) => {
            let known = order.iter().filter_map(|number| numbered.get(number).copied());
            let order: Vec<usize> = known.collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if sorted.iter().copied().ne(0..file.nodes.len()) {
                return Err(FormatError::new("graph.order", "not all nodes, each once"));
            }
            order
        }
        None => numbered.values().copied().collect(),
    };
    let (mut before, mut has_successor) = (vec![Vec::new(); file.nodes.len()], vec![false; file.nodes.len()]);
    for (at, link) in file.links.iter().enumerate() {
        let (Some(&source), Some(&target)) = (numbered.get(&link.source), numbered.get(&link.target)) else {
            let message = format!("from {} to {}, which are not both nodes", link.source, link.target);
            return Err(FormatError::new(format!("links[{at}]"), message));
        };
        before[target].push(source);
        has_successor[source] = true;
        if before[target].len() > MAX_LINKS {
            return Err(FormatError::new(
                format!("links[{at}]"),
                format!("more than {MAX_LINKS} into one node"),
            ));
        }
    }
    build(&file, &order, &before, &has_successor)
}

fn build(
    file: &File,
    order: &[usize],
    before: &[Vec<usize>],
    has_successor: &[bool],
) -> Result<Graph, FormatError> {
    let name = file.graph.name.as_deref().unwrap_or_default();
    if name.len() > MAX_NAME {
        return Err(FormatError::new("graph.name", format!("longer than {MAX_NAME} bytes")));
    }
    let mut builder = GraphBuilder::new(name);
    let mut value_of: Vec<Option<ValueId>> = vec![None; file.nodes.len()];
    for &at in order {
        let node = &file.nodes[at];
        let refuse = |message: String| FormatError::new(format!("nodes[{at}]"), message);
        let name = match &node.name {
            Some(Json::String(name)) => name.clone(),
            Some(other) => format!("node{other}"),
            None => format!("node{at}"),
        };
        if name.len() > MAX_NAME {
            return Err(refuse(format!("`name` is longer than {MAX_NAME} bytes")));
        }
        let time = node.cost_cpu.checked_mul(1000).map(Nanos);
        let time = time.ok_or_else(|| refuse("`cost_cpu` is beyond 2^64 ns".to_owned()))?;
        let mut reads = Vec::with_capacity(before[at].len());
        for &source in &before[at] {
            let late = || refuse(format!("a link from node {source}, which is not before it in the order"));
            reads.push(value_of[source].ok_or_else(late)?);
        }
        let role = if node.backward { Role::Gradient } else { Role::Activation };
        let spec = ValueSpec { name: name.clone(), size: Bytes(node.cost_ram), role, ..ValueSpec::default() };
        let value = builder.value(spec).map_err(|error| refuse(error.to_string()))?;
        value_of[at] = Some(value);
        let phase = if node.backward { Phase::Backward } else { Phase::Forward };
        let spec = OpSpec {
            name,
            kind: "node".to_owned(),
            phase,
            time: Some(time),
            reads,
            writes: vec![value],
            ..OpSpec::default()
        };
        builder.op(spec).map_err(|error| refuse(error.to_string()))?;
        if !has_successor[at] {
            builder.result(value).map_err(|error| refuse(error.to_string()))?;
        }
    }
    builder.finish().map_err(|error| FormatError::new("", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_are_read() {
        let one = br#"{"graph": {"name": "g"}, "nodes": [
            {"id": 0, "name": "a", "cost_ram": 4, "cost_cpu": 5, "backward": false},
            {"id": 1, "name": "b", "cost_ram": 8, "cost_cpu": 0, "backward": true}],
            "links": [{"source": 0, "target": 1}]}"#;
        let graph = read(one).unwrap();
        assert_eq!((graph.op_count(), graph.results()), (2, &[ValueId(1)][..]));
        assert_eq!(graph.op(memfit_ir::OpId(0)).time, Some(Nanos(5000)));
        let other = br#"{"graph": {"order": [7, 3]}, "nodes": [
            {"name": 3, "out_cost": 4, "duration": 5, "param_cost": 0},
            {"name": 7, "out_cost": 8, "duration": 1, "param_cost": 0}], "links": [{"0": 7, "1": 3}]}"#;
        let graph = read(other).unwrap();
        assert_eq!(graph.value(ValueId(0)).size, Bytes(8));
        assert_eq!(graph.op(memfit_ir::OpId(1)).reads, [ValueId(0)]);
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let node = |id: u64| format!(r#"{{"id": {id}, "name": "n", "cost_ram": 1, "cost_cpu": 1}}"#);
        for (nodes, links, message) in [
            (vec![node(0), node(0)], "", "nodes[1]: the number 0 is there twice"),
            (
                vec![node(0)],
                r#"{"source": 0, "target": 9}"#,
                "links[0]: from 0 to 9, which are not both nodes",
            ),
            (
                vec![node(0), node(1)],
                r#"{"source": 1, "target": 0}"#,
                "nodes[0]: a link from node 1, which is not before it in the order",
            ),
            (
                vec![r#"{"name": "x", "cost_ram": 1, "cost_cpu": 1}"#.into()],
                "",
                "nodes[0]: there is no number, neither as `id` nor as `name`",
            ),
        ] {
            let text = format!(r#"{{"nodes": [{}], "links": [{links}]}}"#, nodes.join(","));
            assert_eq!(read(text.as_bytes()).unwrap_err().to_string(), message);
        }
        for text in ["", "[]", "{}", r#"{"nodes": [{"id": 0, "cost_ram": -1, "cost_cpu": 1}], "links": []}"#]
        {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_shared_graphs_have_the_peaks_that_are_known() {
        for (file, ops, peak) in [
            ("vgg16.train", 45, 15_825_108_992),
            ("unet.train", 71, 20_959_461_376),
            ("mobilenet.train", 185, 34_701_056_000u64),
            ("random-n100", 100, 46_319),
        ] {
            let path = format!("{}/../../../shared/data/checkmate/{file}.json", env!("CARGO_MANIFEST_DIR"));
            let Ok(bytes) = std::fs::read(path) else {
                println!("SKIPPED: `shared/data/checkmate/{file}.json` is not there");
                continue;
            };
            let graph = read(&bytes).unwrap();
            let (mut live, mut highest) = (0u64, 0u64);
            let mut left: Vec<usize> =
                graph.value_ids().map(|value| graph.value(value).readers.len()).collect();
            for op in graph.op_ids() {
                let op = graph.op(op);
                live += op.writes.iter().map(|&value| graph.value(value).size.0).sum::<u64>();
                highest = highest.max(live);
                for &value in op.reads {
                    left[value.index()] -= 1;
                    live -= if left[value.index()] == 0 { graph.value(value).size.0 } else { 0 };
                }
            }
            assert_eq!((graph.op_count(), highest), (ops, peak), "{file}");
        }
    }
}
