//! Sections and limits.

use super::cursor::{Cursor, Parsed};
use super::graph::GraphReader;
use super::plan::PlanReader;
use super::{Document, MAX_SOURCE, ParseError};
use crate::{Bank, Bytes, Limits};

enum Section {
    None,
    Limits,
    Graph,
    Plan,
}

/// Reads a text in the form of `docs/text-form.md`. Time and space O(length).
///
/// # Errors
///
/// The first place at which the text departs from the grammar, or at which a graph contradicts itself. A plan
/// may be wrong in every way that a judge can find: it only has to be readable.
pub fn parse(source: impl AsRef<[u8]>) -> Result<Document, ParseError> {
    let source = source.as_ref();
    if source.len() > MAX_SOURCE {
        return Cursor::new("", 1).fail(format!("the text is longer than {MAX_SOURCE} bytes"));
    }
    let text = match std::str::from_utf8(source) {
        Ok(text) => text,
        Err(error) => {
            let good = String::from_utf8_lossy(&source[..error.valid_up_to()]);
            let line = u32::try_from(good.matches('\n').count() + 1).unwrap_or(u32::MAX);
            let last = good.rsplit('\n').next().unwrap_or_default();
            let column = u32::try_from(last.chars().count() + 1).unwrap_or(u32::MAX);
            return Err(ParseError { line, column, message: "not UTF-8".to_owned() });
        }
    };
    let mut document = Document::default();
    let (mut limits, mut graph, mut plan) = (None, None, None);
    let mut section = Section::None;
    let mut last = 1;
    for (line, text) in (1..).zip(text.lines()) {
        last = line;
        let mut cursor = Cursor::new(text, line);
        if !cursor.is_done() {
            let twice = |name: &str| format!("a second section `{name}`");
            match cursor.peek_word() {
                "limits" if limits.is_some() => return cursor.fail(twice("limits")),
                "graph" if graph.is_some() => return cursor.fail(twice("graph")),
                "plan" if plan.is_some() => return cursor.fail(twice("plan")),
                "limits" => {
                    cursor.word();
                    limits = Some(Limits { banks: Vec::new(), ..Limits::arena(Bytes::ZERO, Bytes(1)) });
                    section = Section::Limits;
                }
                "graph" => {
                    graph = Some(GraphReader::new(&mut cursor)?);
                    section = Section::Graph;
                }
                "plan" => {
                    plan = Some(PlanReader::new(&mut cursor)?);
                    section = Section::Plan;
                    document.plan_line = line;
                }
                _ => match (&section, &mut limits, &mut graph, &mut plan) {
                    (Section::Limits, Some(limits), _, _) => limit(limits, &mut cursor)?,
                    (Section::Graph, _, Some(graph), _) => graph.statement(&mut cursor)?,
                    (Section::Plan, _, _, Some(plan)) => {
                        plan.statement(&mut cursor, &mut document.step_lines)?
                    }
                    _ => return cursor.expected("`limits`, `graph` or `plan`"),
                },
            }
        }
        if let Some(comment) = cursor.finish()? {
            document.comments.push((line, comment.to_owned()));
        }
    }
    if limits.as_ref().is_some_and(|limits| limits.banks.is_empty()) {
        return Cursor::new("", last).fail("`limits` names no `bank`");
    }
    document.limits = limits;
    document.graph = graph.map(|graph| graph.finish(last)).transpose()?;
    document.plan = plan.map(|plan| plan.finish(last, document.graph.as_ref())).transpose()?;
    Ok(document)
}

/// One statement of the section `limits`.
fn limit(limits: &mut Limits, cursor: &mut Cursor<'_>) -> Parsed<()> {
    match cursor.peek_word() {
        "bank" => {
            cursor.word();
            let capacity = cursor.bytes()?;
            let mut bank = Bank { name: String::new(), capacity, align: Bytes(1) };
            if cursor.eat_word("align") {
                cursor.expect("=")?;
                bank.align = cursor.bytes()?;
                if bank.align == Bytes::ZERO {
                    return cursor.fail("an alignment of 0");
                }
            }
            bank.name = cursor.string()?.unwrap_or_default();
            if limits.banks.len() > usize::from(u16::MAX) {
                return cursor.fail("more than 65536 banks");
            }
            limits.banks.push(bank);
        }
        "host" => {
            cursor.word();
            limits.host = cursor.bytes()?;
        }
        "disk" => {
            cursor.word();
            limits.disk = cursor.bytes()?;
        }
        "lossy" => {
            cursor.word();
            while !cursor.is_done() {
                match cursor.eat_codec() {
                    Some(codec) => limits.lossy.push(codec),
                    None => return cursor.expected("a codec"),
                }
            }
        }
        "replays-random" => {
            cursor.word();
            limits.replays_random = true;
        }
        "lanes" => {
            cursor.word();
            limits.lanes = cursor.number("a number of lanes")?;
        }
        _ => return cursor.expected("`bank`, `host`, `disk`, `lossy`, `replays-random` or `lanes`"),
    }
    Ok(())
}
