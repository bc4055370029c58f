//! Typed inputs and outputs of handlers; errors name the handler.

use std::sync::Arc;

use everturn_core::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Decodes the inputs and encodes the outputs of one handler.
#[derive(Clone)]
pub(super) struct TypedPayloads {
    /// The handler, as in `activity charge`.
    handler: Arc<str>,
}

impl TypedPayloads {
    pub(super) fn of(handler: String) -> Self {
        Self { handler: handler.into() }
    }

    pub(super) fn decode_input<In: DeserializeOwned>(&self, input: &str) -> Result<In, String> {
        codec::decode(input).map_err(|error| format!("decoding the input of {}: {error}", self.handler))
    }

    pub(super) fn encode_output<Out: Serialize>(&self, output: &Out) -> Result<String, String> {
        codec::encode(output).map_err(|error| format!("encoding the output of {}: {error}", self.handler))
    }
}
