//! Parameters that are gathered together: those of a module, as `fully_shard` makes units.
//!
//! Source: Zhao et al., "PyTorch FSDP" (VLDB 2023), section 4, as `torch.distributed.fsdp.fully_shard` does it: a unit is gathered into one
//! buffer and copied out of it; in the backward pass the next unit's buffer is filled ahead of its use; what no unit has is
//! the root's, which stays from its first use on. Gradients of a unit are scattered together, out of one buffer.

use memfit_ir::{Graph, Phase, ValueId};

use super::Refused;
use super::split::elements;
use super::survey::{Kind, Survey};

/// Units, and whose each parameter is.
pub(super) struct Units {
    /// By value: its unit.
    of: Vec<Option<usize>>,
    /// Names and parameters; the last is the root.
    units: Vec<(String, Vec<ValueId>)>,
    /// By unit: how many gradients it has.
    gradients: Vec<usize>,
}

impl Units {
    /// The units that `patterns` name among the modules of parameters, by the names of those.
    ///
    /// # Errors
    ///
    /// If a pattern names no parameter.
    pub(super) fn of(graph: &Graph, survey: &Survey, patterns: &[String]) -> Result<Units, Refused> {
        let mut units =
            Units { of: vec![None; graph.value_count()], units: Vec::new(), gradients: Vec::new() };
        if patterns.is_empty() {
            return Ok(units);
        }
        let mut known = std::collections::BTreeMap::new();
        let mut used = vec![false; patterns.len()];
        let mut root = Vec::new();
        for id in graph.value_ids() {
            let value = graph.value(id);
            let is_source = value.producer.is_none() && survey.kind(id) == Kind::Parameter;
            if !is_source || elements(graph, id) <= 1 {
                continue;
            }
            let found =
                patterns.iter().enumerate().find_map(|(at, text)| Some((at, module(text, value.name)?)));
            let Some((at, name)) = found else {
                root.push(id);
                continue;
            };
            used[at] = true;
            let unit = *known.entry(name.to_owned()).or_insert_with(|| {
                units.units.push((name.to_owned(), Vec::new()));
                units.units.len() - 1
            });
            units.units[unit].1.push(id);
            units.of[id.index()] = Some(unit);
        }
        if let Some(at) = used.iter().position(|used| !used) {
            return Err(Refused::usage(
                format!("no parameter belongs to a module `{}`", patterns[at]),
                "names of parameters begin with the path of their module, `layers.0.up.weight`; `*` is any one component",
            ));
        }
        for &id in &root {
            units.of[id.index()] = Some(units.units.len());
        }
        units.units.push(("root".to_owned(), root));
        units.find_gradients(graph, survey);
        Ok(units)
    }

    /// A gradient is of the unit of the one parameter that is updated with it; where there are several, of none.
    fn find_gradients(&mut self, graph: &Graph, survey: &Survey) {
        self.gradients = vec![0; self.units.len()];
        for op in graph.op_ids().map(|id| graph.op(id)).filter(|op| op.phase == Phase::Update) {
            let of = |kind| op.reads.iter().copied().filter(move |&value| survey.kind(value) == kind);
            let (mut parameters, mut gradients) = (of(Kind::Parameter), of(Kind::Gradient));
            if let (Some(parameter), None, Some(gradient), None) =
                (parameters.next(), parameters.next(), gradients.next(), gradients.next())
                && let Some(unit) = self.of[survey.first(parameter).index()]
                && elements(graph, gradient) > 1
                && self.of[gradient.index()].is_none()
            {
                self.of[gradient.index()] = Some(unit);
                self.gradients[unit] += 1;
            }
        }
    }

    /// The unit of a gradient.
    pub(super) fn of_gradient(&self, value: ValueId) -> Option<usize> {
        self.of[value.index()]
    }

    /// How many gradients a unit has.
    pub(super) fn gradients(&self, unit: usize) -> usize {
        self.gradients[unit]
    }

    /// The unit of a parameter, by its first version.
    pub(super) fn of_value(&self, value: ValueId) -> Option<usize> {
        self.of[value.index()]
    }

    pub(super) fn is_root(&self, unit: usize) -> bool {
        unit + 1 == self.units.len()
    }

    pub(super) fn name(&self, unit: usize) -> &str {
        &self.units[unit].0
    }

    pub(super) fn members(&self, unit: usize) -> &[ValueId] {
        &self.units[unit].1
    }
}

/// The start of `name` that `pattern` names, if that is followed by more.
fn module<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    let mut end = 0;
    let mut parts = name.split('.');
    for wanted in pattern.split('.') {
        let part = parts.next()?;
        if wanted != "*" && wanted != part {
            return None;
        }
        end += part.len() + 1;
    }
    parts.next().map(|_| &name[..end - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_modules_and_not_parameters() {
        for (pattern, name, found) in [
            ("layers.*", "layers.0.up.weight", Some("layers.0")),
            ("layers.*", "layers.12.weight", Some("layers.12")),
            ("layers.1", "layers.12.weight", None),
            ("*", "head.weight", Some("head")),
            ("*", "scale", None),
            ("layers.*", "layers.0", None),
            ("", "head.weight", None),
            ("*.*", "é.ü.weight", Some("é.ü")),
        ] {
            assert_eq!(module(pattern, name), found, "{pattern} {name}");
        }
    }
}
