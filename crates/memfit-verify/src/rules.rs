//! What the judge can object to.

use std::fmt;

macro_rules! rules {
    ($($number:literal $rule:ident $name:literal),+) => {
        /// A numbered rule; the head of the crate says what each demands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the list at the head of the crate describes each")]
        pub enum Rule { $($rule = $number),+ }

        impl Rule {
            /// Every rule with its name in files.
            pub const ALL: &[(Rule, &str)] = &[$((Rule::$rule, $name)),+];
        }
    };
}
rules!(0 Graph "graph", 1 Structure "structure", 2 Stay "stay", 3 Size "size", 4 Place "place", 5 Value "value",
    6 Overwrite "overwrite", 7 InPlace "in-place", 8 Effect "effect", 9 Host "host", 10 Lossy "lossy",
    11 Transfer "transfer", 12 Lane "lane", 13 Result "result", 14 Codec "codec");

impl fmt::Display for Rule {
    /// `R6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}", *self as u8)
    }
}

/// One way in which a plan is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: Rule,
    /// Index of the step, where one step is to blame.
    pub step: Option<usize>,
    /// What is wrong, with the names of buffers, ops and values.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.step.map_or(String::new(), |step| format!(" step {step}"));
        write!(f, "{}{at}: {}", self.rule, self.message)
    }
}

/// All that is wrong with a plan, in program order; at most [`Rejected::MOST`] entries, never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The violations.
    pub violations: Vec<Violation>,
}

impl Rejected {
    /// After this many violations the judge stops noting them: one error makes many that follow from it.
    pub const MOST: usize = 200;
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Rejected {}
