//! The memfit command.
fn main() {}
