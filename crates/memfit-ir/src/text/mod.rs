//! Limits, graphs and plans as text: what tests are written in, what bugs are reported as, what people read.
//!
//! One file holds up to three sections, `limits`, `graph` and `plan`, one statement on a line; `;` starts a
//! comment. The grammar is in `docs/text-form.md`. By convention a graph alone is a `.mfg` file, and anything
//! with a plan in it is a `.mfp` file.
//!
//! ```
//! # use memfit_ir::text;
//! let source = "\
//! limits
//!   bank 64 align=16 \"arena\"
//! graph \"tiny\"
//!   v0 = input 16 \"x\" f32[4]
//!   v1 = activation 16
//!   op0 = forward scale(v0) -> v1 flops=4 may=v0>v1
//!   result v1
//! plan
//!   resident b0[v0 +16 @0]
//!   compute op0(b0) -> b1[v1 +16 @0 over b0]
//! ";
//! let document = text::parse(source)?;
//! assert_eq!(document.plan.as_ref().map(|plan| plan.program.steps.len()), Some(1));
//! assert_eq!(document.to_string(), source);
//! # Ok::<(), text::ParseError>(())
//! ```

mod cursor;
mod graph;
mod parse;
mod plan;
mod print;

pub use parse::parse;
pub use print::{print, step};

use std::fmt;

use crate::{Graph, Limits, Plan};

/// The longest source that is read.
pub const MAX_SOURCE: usize = 1 << 30;

/// What a text holds.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The section `limits`.
    pub limits: Option<Limits>,
    /// The section `graph`.
    pub graph: Option<Graph>,
    /// The section `plan`. Its digest is that of the graph in the same text where it names none.
    pub plan: Option<Plan>,
    /// The line of the word `plan`, counted from 1; 0 if there is none.
    pub plan_line: u32,
    /// The line of every step of the plan, counted from 1.
    pub step_lines: Vec<u32>,
    /// Every comment: its line, counted from 1, and its text without the `;` and the space around.
    pub comments: Vec<(u32, String)>,
}

impl fmt::Display for Document {
    /// The same as [`print()`]: comments are not kept.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self.limits.as_ref(), self.graph.as_ref(), self.plan.as_ref()))
    }
}

/// Where and why a text could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: u32,
    /// Character within the line, counted from 1.
    pub column: u32,
    /// What was expected there.
    pub message: String,
}
