//! One idea a file, each runnable with `cargo run --example NAME` and run by the tests.
//!
//! The README follows; its program is compiled with the documentation tests.
#![doc = include_str!("../README.md")]
