//! Examples: one idea a file. `cargo run --example NAME` runs one; the tests run them all.
//!
//! The README follows. The documentation tests compile its program.
#![doc = include_str!("../README.md")]
