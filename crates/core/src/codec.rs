//! How typed values are encoded as payload text.
//!
//! A string is its own payload. Any other value is compact JSON with the keys of every object in ascending order. Replay
//! compares payloads as text, so the same value must give the same text in every build and every process.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The payload text of a value.
///
/// ```
/// use everturn_core::codec;
///
/// assert_eq!(codec::encode(&"abc").unwrap(), "abc");
/// assert_eq!(codec::encode(&vec![1, 2]).unwrap(), "[1,2]");
/// ```
///
/// # Errors
/// The text of the serialisation error.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, String> {
    match serde_json::to_value(value).map_err(|error| error.to_string())? {
        Value::String(text) => Ok(text),
        mut other => {
            // Any crate of the program may enable `preserve_order`, which keeps the order of declaration instead.
            other.sort_all_objects();
            Ok(other.to_string())
        }
    }
}

/// The value of a payload text: the text as JSON, or else the text itself as a JSON string.
///
/// ```
/// use everturn_core::codec;
///
/// assert_eq!(codec::decode::<String>("abc").unwrap(), "abc");
/// assert_eq!(codec::decode::<u32>("7").unwrap(), 7);
/// ```
///
/// # Errors
/// The error text of the second attempt, which reads the text as a JSON string.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_value(Value::String(text.to_owned())))
        .map_err(|error| error.to_string())
}
