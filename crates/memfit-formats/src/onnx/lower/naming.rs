//! What nodes are called, in graphs and in messages about them.

use super::super::proto::NodeProto;
use super::super::tensor::Trouble;
use super::domain;
use super::frame::Frame;

/// Name of a node, or of what it makes.
pub(super) fn label(node: &NodeProto) -> &str {
    let outputs = node.output.iter().map(String::as_str);
    std::iter::once(node.name()).chain(outputs).find(|name| !name.is_empty()).unwrap_or_default()
}

pub(super) fn place(node: &NodeProto, frame: &Frame<'_, '_>) -> String {
    format!("node `{}{}` ({})", frame.prefix, label(node), node.op_type())
}

/// Dotted path of the PyTorch module that `node` comes from, where an exporter wrote it down.
pub(super) fn module(node: &NodeProto) -> String {
    let namespace =
        node.metadata_props.iter().find(|entry| entry.key() == "namespace").map(|entry| entry.value());
    if let Some(namespace) = namespace {
        // `: Model/layers.0: Layer/layers.0.linear: Linear/addmm: aten.addmm.default`
        let scope = namespace.rsplit('/').nth(1).unwrap_or_default();
        return scope.split(": ").next().unwrap_or_default().to_owned();
    }
    // `/layers.0/linear/Gemm`
    let path = node.name().strip_prefix('/').and_then(|path| path.rsplit_once('/'));
    path.map_or_else(String::new, |(path, _)| path.replace('/', "."))
}

/// Why `name`, read by the first of `nodes`, is not there.
pub(super) fn absent(name: &str, nodes: &[NodeProto], frame: &Frame<'_, '_>) -> Trouble {
    match nodes.iter().find(|node| node.output.iter().any(|output| output == name)) {
        Some(later) if std::ptr::eq(later, &raw const nodes[0]) => {
            Trouble::new(format!("it reads its own output `{name}`"))
        }
        Some(later) => {
            let later = place(later, frame);
            Trouble::new(format!(
                "it reads `{name}`, which {later} makes later: the nodes are in a wrong order or in a cycle"
            ))
        }
        None => Trouble::new(format!("it reads `{name}`, which nothing makes")),
    }
}

pub(super) fn unknown(node: &NodeProto) -> Trouble {
    let name = node.op_type();
    match (domain(node.domain()), name) {
        ("", _) => Trouble::new(format!("operator `{name}` is not known"))
            .hint("export it as a function of known operators, or for another opset"),
        (domain, _) => Trouble::new(format!("operator `{name}` of domain `{domain}` is not known"))
            .hint("add it to the model as a function of known operators"),
    }
}
