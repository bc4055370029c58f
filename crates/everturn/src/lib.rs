//! Durable execution as a library.
#![forbid(unsafe_code)]
