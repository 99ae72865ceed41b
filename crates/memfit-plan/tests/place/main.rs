//! Placers against generated problems, a validator of their own, brute force and published examples.

mod every;
mod lanes;
mod refcount;
mod support;
