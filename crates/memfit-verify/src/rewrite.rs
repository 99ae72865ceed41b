//! The judge's companion: decides whether a [`Rewrite`] computes what its original computes.
//!
//! # Method
//!
//! Every value of both graphs gets a *term*: which op makes it, of which terms. Equal terms stand for equal bytes. A pure op with
//! attributes is known by its kind, attributes and arithmetic; any other is known as the op of the original that it is, so it equals
//! nothing else. A few identities that keep every bit, in a table of this file's own, make two terms one. Nothing is
//! shared with the passes that rewrite, and their reasons are not read.
//!
//! # Rules
//!
//! - **R0 graph**: ids of both graphs are in range, each part of the original is stood for once, and in its order; ops are kept or listed as
//!   removed.
//! - **R1 structure**: a value has the size, type, shape, role and address that it had, a source is a source; an op has the kind,
//!   attributes, costs and needs that it had, as many operands, and the same outputs.
//! - **R5 value**: a value has the term of the one that it stands for.
//! - **R7 in place**: pairs that must be are there, from the same storage. A pair that may be had one for each operand that
//!   its input stands for, or its op changes no byte.
//! - **R8 effect**: seeded, once and collective ops are all there, in their order.
//! - **R13 result**: the results, which the last versions of all persistent storages are among, are those of the original.
//!
//! # Not checked
//!
//! Whether attributes say all that an op was told, which is the graph's word; peaks and times.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Dtype, Effect, Graph, Need, Op, OpId, Reuse, Rewrite, ValueId};

use crate::rules::{Rejected, Rule, Violation};

/// A term, by the order in which it was found.
type Term = usize;

/// What makes a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Head {
    Source(ValueId),
    /// An op that equals nothing else.
    Own(OpId, Vec<Term>),
    /// Kind, attributes, arithmetic, what is read of the operands, and these.
    Known(String, String, Dtype, Vec<Need>, Vec<Term>),
}

/// What may be undone: what an op made of which term, how that is seen, and by which permutation it was turned.
#[derive(Clone, Debug)]
struct Undo {
    from: Term,
    seen: String,
    out: String,
    turned: Option<Vec<usize>>,
}

/// All terms of both graphs.
#[derive(Debug, Default)]
struct Terms {
    known: BTreeMap<(Head, usize), Term>,
    undo: BTreeMap<Term, Undo>,
}

/// Reads a rewrite of `original` and either vouches for it or says what is wrong with it. Time O(operands × log operands).
///
/// # Errors
///
/// The violations found; never an empty list.
pub fn check(original: &Graph, rewrite: &Rewrite) -> Result<(), Rejected> {
    let mut check = Check { original, rewrite, violations: Vec::new() };
    check.ids();
    if check.violations.is_empty() {
        check.parts();
        check.terms();
        check.ends();
    }
    if check.violations.is_empty() { Ok(()) } else { Err(Rejected { violations: check.violations }) }
}

struct Check<'a> {
    original: &'a Graph,
    rewrite: &'a Rewrite,
    violations: Vec<Violation>,
}

impl Check<'_> {
    fn demand(&mut self, holds: bool, rule: Rule, message: impl FnOnce() -> String) {
        if !holds && self.violations.len() < Rejected::MOST {
            self.violations.push(Violation { rule, step: None, message: message() });
        }
    }

    fn ids(&mut self) {
        let Rewrite { graph, values, ops, removed, .. } = self.rewrite;
        let counts = (values.len(), ops.len()) == (graph.value_count(), graph.op_count());
        self.demand(counts, Rule::Graph, || {
            "the rewrite does not say what each op and value stands for".to_owned()
        });
        let ascend =
            values.windows(2).all(|pair| pair[0] < pair[1]) && ops.windows(2).all(|pair| pair[0] < pair[1]);
        self.demand(ascend, Rule::Graph, || {
            "ops or values stand for some of the original twice, or in another order".to_owned()
        });
        let known = values.last().is_none_or(|value| value.index() < self.original.value_count());
        self.demand(known, Rule::Graph, || "a value stands for none of the original".to_owned());
        let mut all: Vec<OpId> = ops.iter().copied().chain(removed.iter().map(|(op, _)| *op)).collect();
        all.sort_unstable();
        let complete = all.iter().copied().eq(self.original.op_ids());
        self.demand(complete, Rule::Graph, || {
            "an op of the original is neither kept nor removed, or both".to_owned()
        });
    }

    /// The value of the original that `value` of the new graph stands for.
    fn of(&self, value: ValueId) -> ValueId {
        self.rewrite.values[value.index()]
    }

    fn parts(&mut self) {
        let (old, new) = (self.original, &self.rewrite.graph);
        fn sizes<'g>(graph: &'g Graph, values: &'g [ValueId]) -> impl Iterator<Item = Bytes> + 'g {
            values.iter().map(|&value| graph.value(value).size)
        }
        self.demand(old.replays_random() == new.replays_random(), Rule::Graph, || {
            "the graphs differ in what their host replays".to_owned()
        });
        for id in new.value_ids() {
            let (was, is) = (old.value(self.of(id)), new.value(id));
            let same = (was.size, was.dtype, was.shape, was.role, was.pin)
                == (is.size, is.dtype, is.shape, is.role, is.pin)
                && (was.density, was.sensitivity) == (is.density, is.sensitivity)
                && was.producer.is_none() == is.producer.is_none();
            self.demand(same, Rule::Structure, || format!("{id} `{}` is not what it stands for", is.name));
        }
        for (id, &from) in new.op_ids().zip(&self.rewrite.ops) {
            let (was, is) = (old.op(from), new.op(id));
            let same = (was.kind, was.attributes, was.phase, was.effect)
                == (is.kind, is.attributes, is.phase, is.effect)
                && (was.flops.to_bits(), was.moved, was.time, was.dtype)
                    == (is.flops.to_bits(), is.moved, is.time, is.dtype)
                && (was.workspace, was.needs, was.algorithms) == (is.workspace, is.needs, is.algorithms)
                && sizes(old, was.reads).eq(sizes(new, is.reads))
                && is.writes.iter().map(|&value| self.of(value)).eq(was.writes.iter().copied());
            self.demand(same, Rule::Structure, || {
                format!("{id} `{}` is not the op that it stands for", is.name)
            });
            let must = |op: &Op<'_>| op.reuses.iter().filter(|pair| pair.must).count();
            let pairs = must(&was) == must(&is) && is.reuses.iter().all(|pair| self.allows(&was, &is, pair));
            self.demand(!same || pairs, Rule::InPlace, || {
                format!("{id} `{}` has an in-place pair that it has not", is.name)
            });
        }
    }

    /// Whether `pair` of `is` is one of `was`, whatever its input stands for.
    fn allows(&self, was: &Op<'_>, is: &Op<'_>, pair: &Reuse) -> bool {
        let output = self.of(pair.output);
        let mut inputs = was.reads.iter().zip(is.reads).filter(|(_, read)| **read == pair.input);
        let has = |&input: &ValueId| was.reuses.contains(&Reuse { input, output, must: pair.must });
        match pair.must {
            true => was.reuses.contains(&Reuse { input: self.of(pair.input), output, must: true }),
            false => {
                inputs.all(|(input, _)| has(input))
                    || (view(is) && is.effect == Effect::Pure && is.reads.len() == 1)
            }
        }
    }

    fn terms(&mut self) {
        let mut terms = Terms::default();
        let all: Vec<ValueId> = self.original.value_ids().collect();
        let ops: Vec<OpId> = self.original.op_ids().collect();
        let old = terms.of(self.original, &all, &ops);
        let new = terms.of(&self.rewrite.graph, &self.rewrite.values, &self.rewrite.ops);
        for id in self.rewrite.graph.value_ids() {
            let same = old[self.of(id).index()] == new[id.index()];
            let name = self.rewrite.graph.value(id).name;
            self.demand(same, Rule::Value, || format!("{id} `{name}` is computed from something else"));
        }
    }

    fn ends(&mut self) {
        let Rewrite { graph, ops, .. } = self.rewrite;
        let results =
            graph.results().iter().map(|&value| self.of(value)).eq(self.original.results().iter().copied());
        self.demand(results, Rule::Result, || "the results are not those of the original".to_owned());
        let acts = |id: &OpId| self.original.op(*id).effect != Effect::Pure;
        let effects = self.original.op_ids().filter(acts).eq(ops.iter().copied().filter(acts));
        self.demand(effects, Rule::Effect, || "an op with an effect is missing".to_owned());
    }
}

impl Terms {
    /// The terms of the values of `graph`, which stand for `values` and whose ops are `ops` of the original.
    fn of(&mut self, graph: &Graph, values: &[ValueId], ops: &[OpId]) -> Vec<Term> {
        let mut terms: Vec<Term> = vec![0; graph.value_count()];
        for id in graph.value_ids().filter(|&id| graph.value(id).producer.is_none()) {
            terms[id.index()] = self.term(Head::Source(values[id.index()]), 0);
        }
        for (id, &from) in graph.op_ids().zip(ops) {
            let op = graph.op(id);
            let reads: Vec<Term> = op.reads.iter().map(|value| terms[value.index()]).collect();
            let known = op.attributes.filter(|_| op.effect == Effect::Pure);
            let sizes = |read: usize| graph.value(op.reads[read]).size == graph.value(op.writes[0]).size;
            let same =
                known.filter(|_| op.writes.len() == 1).and_then(|text| self.same(&op, text, &reads, sizes));
            let head = match known {
                Some(text) => Head::Known(
                    op.kind.to_owned(),
                    text.to_owned(),
                    op.dtype,
                    op.needs.to_vec(),
                    reads.clone(),
                ),
                None => Head::Own(from, reads.clone()),
            };
            for (at, value) in op.writes.iter().enumerate() {
                terms[value.index()] = same.unwrap_or_else(|| self.term(head.clone(), at));
            }
            if let (None, Some(undo), &[out]) =
                (same, known.and_then(|text| undo(&op, text, &reads)), op.writes)
            {
                self.undo.insert(terms[out.index()], undo);
            }
        }
        terms
    }

    fn term(&mut self, head: Head, output: usize) -> Term {
        let next = self.known.len();
        *self.known.entry((head, output)).or_insert(next)
    }

    /// The term that the op's one output equals by an identity. `sizes`: whether this read and the output are equally large.
    fn same(&self, op: &Op<'_>, text: &str, reads: &[Term], sizes: impl Fn(usize) -> bool) -> Option<Term> {
        let out = get(text, "out0")?;
        let tensor = |key| tensor(text, key).filter(|(read, ..)| *read < reads.len() && sizes(*read));
        if matches!(op.kind, "Identity" | "Cast" | "aten.clone.default" | "aten._to_copy.default")
            && let Some((read, seen, _)) = tensor("0")
            && seen == out
        {
            return Some(reads[read]);
        }
        if view(op) {
            return tensor("0").map(|(read, ..)| reads[read]);
        }
        if let Some(undo) = undo(op, text, reads) {
            return self.undone(&undo);
        }
        let (one, zero) = match op.kind {
            "Mul" => (&["0", "1"][..], None),
            "Div" | "aten.mul.Tensor" | "aten.mul.Scalar" | "aten.div.Tensor" => (&["1"][..], None),
            "Add" => (&["0", "1"][..], Some(-0.0)),
            "aten.add.Tensor" => (&["1"][..], Some(-0.0)),
            "Sub" | "aten.sub.Tensor" => (&["1"][..], Some(0.0_f64)),
            _ => return None,
        };
        let elem = out.split('[').next().unwrap_or_default();
        let is_int = elem.starts_with("int") || elem.starts_with("uint");
        let real = elem.starts_with("float") || elem.starts_with("bfloat") || elem.starts_with("double");
        let neutral = |number: f64| match zero {
            None => number == 1.0,
            Some(_) if is_int => number == 0.0,
            Some(zero) => number.to_bits() == zero.to_bits(),
        };
        if !(is_int || real) || get(text, "alpha").is_some() {
            return None;
        }
        one.iter().find_map(|&key| {
            number(text, key).filter(|number| neutral(*number))?;
            let (read, seen, _) = tensor(if key == "0" { "1" } else { "0" })?;
            (seen == out).then_some(reads[read])
        })
    }

    /// The term that is there again after `last`, which turns or casts back what others have turned or cast.
    fn undone(&self, last: &Undo) -> Option<Term> {
        let mut now = last.clone();
        loop {
            let before = self.undo.get(&now.from)?;
            if before.out != now.seen {
                return None;
            }
            match (&last.turned, &before.turned) {
                (Some(outer), Some(inner)) => {
                    let back = outer.len() == inner.len()
                        && (0..outer.len()).all(|at| inner.get(outer[at]) == Some(&at));
                    return (back && before.seen == last.out).then_some(before.from);
                }
                (None, None) if exact(&before.seen, &before.out) => {}
                _ => return None,
            }
            if before.seen == last.out {
                return Some(before.from);
            }
            now = before.clone();
        }
    }
}

/// What may be undone of `op`: a transpose, or a cast that leaves each element in its place.
fn undo(op: &Op<'_>, text: &str, reads: &[Term]) -> Option<Undo> {
    let (read, seen, _) = tensor(text, "0")?;
    let out = get(text, "out0")?;
    let place = |seen: &str| seen.split_once('[').map(|(_, place)| place.to_owned());
    let turned = match op.kind {
        "Transpose" => Some(
            get(text, "perm")?.split(',').map(|axis| axis.parse().ok()).collect::<Option<Vec<usize>>>()?,
        ),
        "Cast" | "aten._to_copy.default" if place(seen).is_some() && place(seen) == place(out) => None,
        _ => return None,
    };
    Some(Undo { from: *reads.get(read)?, seen: seen.to_owned(), out: out.to_owned(), turned })
}

/// Whether the op leaves all bytes of its operand as they are: ONNX's tensors have their elements in one order.
fn view(op: &Op<'_>) -> bool {
    let elem = |seen: &str| seen.split_once('[').map(|(elem, _)| elem.to_owned());
    let elems = op.attributes.and_then(|text| Some((elem(tensor(text, "0")?.1), elem(get(text, "out0")?))));
    matches!(op.kind, "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity")
        && elems.is_some_and(|(from, to)| from.is_some() && from == to)
}

fn get<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(';').find_map(|item| item.strip_prefix(key)?.strip_prefix('='))
}

/// The operand that an argument is, how it is seen, and what all its elements are.
fn tensor<'a>(text: &'a str, key: &str) -> Option<(usize, &'a str, Option<&'a str>)> {
    let (read, seen) = get(text, key)?.strip_prefix('$')?.split_once(':')?;
    let mut parts = seen.splitn(2, '=');
    Some((read.parse().ok()?, parts.next()?, parts.next()))
}

fn number(text: &str, key: &str) -> Option<f64> {
    match tensor(text, key) {
        Some((.., all)) => all?.parse().ok(),
        None => get(text, key)?.parse().ok(),
    }
}

/// Whether every number of the one type is one of the other: as many bits of fraction, as large an exponent.
fn exact(from: &str, to: &str) -> bool {
    /// Bits of a number without its sign; whether it has one; of a float those of the fraction, and of the exponent.
    fn bits(seen: &str) -> Option<(u32, bool, u32)> {
        let elem = seen.split('[').next()?;
        let int = elem.trim_start_matches('u').strip_prefix("int").and_then(|bits| bits.parse::<u32>().ok());
        match elem {
            "float16" => Some((11, true, 5)),
            "bfloat16" => Some((8, true, 8)),
            "float" | "float32" => Some((24, true, 8)),
            "double" | "float64" => Some((53, true, 11)),
            _ if elem.starts_with('u') => Some((int?, false, 0)),
            _ => Some((int? - 1, true, 0)),
        }
    }
    let (Some((from, from_signed, from_range)), Some((to, to_signed, to_range))) = (bits(from), bits(to))
    else {
        return false;
    };
    let larger = from < to || (from == to && (from_signed, from_range) != (to_signed, to_range));
    // Each float's exponent holds as many bits of an integer as its fraction has.
    larger && from_signed <= to_signed && from_range <= to_range
}
