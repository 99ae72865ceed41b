//! Placers against generated problems, a validator of their own, brute force and published examples.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests are tests")]

mod every;
mod lanes;
mod refcount;
mod support;
