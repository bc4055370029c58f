//! Everturn's embedded provider.
#![forbid(unsafe_code)]
