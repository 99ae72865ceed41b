//! Spans of [`tracing`](https://docs.rs/tracing), for those who look at a program with its tools.

/// Opens a span until the end of the block, at level `DEBUG` and with target `memfit`; nothing without the feature `tracing`.
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::debug_span!(target: "memfit", $name $(, $field = $value)*).entered();
    };
}

pub(super) use span;
