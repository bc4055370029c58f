//! Typed inputs and results of calls; errors name the callee.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;

/// What a call runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Callee<'a> {
    /// The activity of this name.
    Activity(&'a str),
    /// The orchestration of this name.
    Orchestration(&'a str),
}

impl fmt::Display for Callee<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activity(name) => write!(f, "activity {name}"),
            Self::Orchestration(name) => write!(f, "orchestration {name}"),
        }
    }
}

/// The payload of a typed input.
///
/// # Panics
/// If the value cannot be encoded: a mistake in the orchestration.
#[track_caller]
pub(super) fn encoded_input<In: Serialize>(callee: Callee<'_>, input: &In) -> String {
    codec::encode(input).unwrap_or_else(|error| panic!("encoding the input of {callee}: {error}"))
}

/// The typed form of a result.
pub(super) fn decoded_result<Out: DeserializeOwned>(
    callee: Callee<'_>,
    result: Result<String, String>,
) -> Result<Out, String> {
    codec::decode(&result?).map_err(|error| format!("decoding the result of {callee}: {error}"))
}
