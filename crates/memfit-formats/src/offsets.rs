//! The layout of a plan for those who run it themselves: as a C header, as JSON, as CSV.
//!
//! All three list the buffers in the order of the plan, with bank, offset and size in bytes, and say how many bytes
//! each bank must have and what its start must be aligned to.

use std::fmt::Write as _;

use memfit_ir::{Bytes, Content, Graph, Lifespan, Place};
use serde_json::{Value, json};

use crate::plan_json::PlanFile;

/// A row of every form.
struct Row {
    name: String,
    place: Place,
    size: Bytes,
    span: Lifespan,
}

/// A plan, laid out as rows, with names where the graph is at hand.
pub struct Offsets<'a> {
    file: &'a PlanFile,
    rows: Vec<Row>,
    /// Bytes each bank must have.
    sizes: Vec<Bytes>,
}

impl<'a> Offsets<'a> {
    /// The offsets of a plan that the verifier has accepted: ids in range, a place for each buffer.
    #[must_use]
    pub fn of(file: &'a PlanFile, graph: Option<&Graph>) -> Offsets<'a> {
        let (program, places) = (&file.plan.program, &file.plan.layout.places);
        let name = |content: Content| match (content.value(), graph) {
            (Some(value), Some(graph)) if value.index() < graph.value_count() => {
                graph.value(value).name.to_owned()
            }
            (Some(value), _) => value.to_string(),
            (None, _) => "workspace".to_owned(),
        };
        let rows = program.buffers.iter().zip(places).zip(program.lifespans());
        let rows = rows.map(|((buffer, &place), span)| Row {
            name: name(buffer.content),
            place,
            size: buffer.size,
            span,
        });
        let sizes = (0..file.header.banks.len())
            .map(|bank| {
                let bank_index = u16::try_from(bank).unwrap_or(u16::MAX);
                file.plan.layout.height(program, bank_index).round_up(file.header.banks[bank].align)
            })
            .collect();
        Offsets { file, rows: rows.collect(), sizes }
    }

    /// A C99 header without dependencies. Every name starts with `prefix`, of which only letters, digits and
    /// underscores are kept.
    #[must_use]
    pub fn c_header(&self, prefix: &str) -> String {
        let lower = identifier(prefix);
        let upper = lower.to_ascii_uppercase();
        let header = &self.file.header;
        let mut text = format!(
            "/* Offsets of the plan for {}, by {}. Don't edit: export the plan again. */\n\
             #ifndef {upper}_PLAN_H\n#define {upper}_PLAN_H\n\n#include <stdint.h>\n\n\
             #define {upper}_BUFFER_COUNT {}u\n#define {upper}_BANK_COUNT {}u\n\n\
             /* A buffer lies at the start of its bank plus `offset`. All in bytes. */\n\
             struct {lower}_buffer {{\n    uint64_t offset;\n    uint64_t size;\n    uint32_t bank;\n}};\n\n",
            comment(&header.graph_name),
            comment(&header.generator),
            self.rows.len(),
            header.banks.len(),
        );
        let cases = |text: &mut String, what: &str, about: &str, of: &dyn Fn(usize) -> u64| {
            *text += &format!("/* {about} 0 for a bank that is not there. */\n");
            *text +=
                &format!("static inline uint64_t {lower}_{what}(uint32_t bank)\n{{\n    switch (bank) {{\n");
            for (bank, limits) in header.banks.iter().enumerate() {
                // Writing to a string can't fail.
                let _ = writeln!(
                    text,
                    "    case {bank}u: return UINT64_C({}); /* {} */",
                    of(bank),
                    comment(&limits.name)
                );
            }
            *text += "    default: return 0;\n    }\n}\n\n";
        };
        cases(&mut text, "bank_size", "Bytes that a bank must have.", &|bank| self.sizes[bank].0);
        cases(&mut text, "bank_alignment", "What the start of a bank must be a multiple of.", &|bank| {
            header.banks[bank].align.0
        });
        let total: Bytes = self.sizes.iter().copied().sum();
        text += &format!(
            "/* Bytes of all banks together. */\n\
             static inline uint64_t {lower}_total_size(void)\n{{\n    return UINT64_C({});\n}}\n\n\
             /* The buffers in the order of the plan; null for an index that is none. */\n\
             static inline const struct {lower}_buffer *{lower}_buffer_at(uint32_t index)\n{{\n    \
             static const struct {lower}_buffer buffers[] = {{\n",
            total.0
        );
        for row in &self.rows {
            let Row { place, size, .. } = row;
            let _ = writeln!(
                text,
                "        {{UINT64_C({}), UINT64_C({}), {}u}}, /* {} */",
                place.offset.0,
                size.0,
                place.bank,
                comment(&row.name)
            );
        }
        // An array can't be empty in C.
        text += "        {0, 0, 0}\n    };\n";
        text += &format!("    return index < {upper}_BUFFER_COUNT ? &buffers[index] : 0;\n}}\n\n#endif\n");
        text
    }

    /// One JSON object, `memfit-offsets/1`.
    #[must_use]
    pub fn json(&self) -> Value {
        let header = &self.file.header;
        let banks = header.banks.iter().zip(&self.sizes);
        json!({
            "schema": "memfit-offsets/1",
            "graph": self.file.plan.graph.to_string(),
            "graph_name": header.graph_name,
            "total_bytes": self.sizes.iter().copied().sum::<Bytes>().0,
            "banks": banks.map(|(bank, size)| json!({
                "name": bank.name,
                "bytes": size.0,
                "align": bank.align.0,
            })).collect::<Vec<_>>(),
            "buffers": self.rows.iter().enumerate().map(|(index, row)| json!({
                "id": index,
                "name": row.name,
                "bank": row.place.bank,
                "offset": row.place.offset.0,
                "size": row.size.0,
                "lower": row.span.from,
                "upper": row.span.until,
            })).collect::<Vec<_>>(),
        })
    }

    /// Rows `id,name,bank,lower,upper,size,offset`; lifetimes are half-open, in steps.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "id,name,bank,lower,upper,size,offset\n".to_owned();
        for (index, row) in self.rows.iter().enumerate() {
            let Row { place, size, span, .. } = row;
            let _ = writeln!(
                text,
                "{index},{},{},{},{},{},{}",
                identifier(&row.name),
                place.bank,
                span.from,
                span.until,
                size.0,
                place.offset.0
            );
        }
        text
    }
}

/// `text` as part of a C identifier or a plain CSV cell.
fn identifier(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') { plain } else { format!("_{plain}") }
}

/// `text` as part of a C comment: nothing that ends one, starts another, or joins lines.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || " ._-'()[]".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_comment_or_cell() {
        assert_eq!(comment("a */ int x; /* \\\n"), "a __ int x_ __ __");
        assert_eq!(identifier("=cmd|'/C'!A0"), "_cmd___C__A0");
        assert_eq!(identifier("7b.bias"), "_7b_bias");
    }
}
