//! How typed values are encoded as payload text.
//!
//! A string is its own payload. Any other value is compact JSON with the keys of every object in ascending order. Replay
//! compares payloads as text, so the same value must give the same text in every build and every process.
//!
//! # Values that JSON cannot hold
//!
//! Both ways of encoding refuse, with an error that says so, what would be read back as something else: `Some(None)`,
//! `Some(())`, NaN and the infinities, at any depth. Integers of more than 64 bits, and values that are nested more deeply than
//! [`decode`] can read, are refused as well.
//!
//! # Strings that look like JSON
//!
//! [`decode`] reads a text as JSON first. So the string `"quoted"`, with its quotes, sent without more, is read as `quoted`,
//! the text `null` as the `None` of an `Option<String>`, and `123` as a number where the target can be a number or a text.
//!
//! [`encode_typed`] knows what the text is read as. It puts such a string into quotes, and every value comes back as it was.
//! [`encode`] does not know: the `_typed` calls of `OrchestrationContext`, the registries and the client have only
//! `Serialize` to go by, and send every string as it is, so that a text which is JSON already can be read as any type. Where
//! a string with quotes, `null` or digits must come back exactly, use `encode_typed` and the call without `_typed`:
//!
//! ```
//! use everturn_core::{OrchestrationContext, codec};
//!
//! async fn store_note(ctx: OrchestrationContext, note: String) -> Result<String, String> {
//!     // The activity reads it with `codec::decode`, or is registered with `register_typed`.
//!     ctx.schedule_activity("Store", codec::encode_typed(&Some(note))?).await
//! }
//! ```

mod checked;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use checked::Checked;

/// The payload text of a value, whatever it is read as. See [`encode_typed`] for texts that look like JSON.
///
/// ```
/// use everturn_core::codec;
///
/// assert_eq!(codec::encode(&"abc").unwrap(), "abc");
/// assert_eq!(codec::encode(&vec![1, 2]).unwrap(), "[1,2]");
/// assert!(codec::encode(&f64::NAN).is_err());
/// ```
///
/// # Errors
/// The text of the serialisation error, also for a value that JSON cannot hold.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, String> {
    Ok(match to_json(value)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// The payload text of a value that is read as the same type: the text of [`encode`], or a string in quotes if
/// [`decode`] would read another value.
///
/// ```
/// use everturn_core::codec;
///
/// for text in [Some("abc".to_owned()), Some("null".to_owned()), Some("\"quoted\"".to_owned()), None] {
///     let payload = codec::encode_typed(&text).unwrap();
///     assert_eq!(codec::decode::<Option<String>>(&payload).unwrap(), text);
/// }
/// assert_eq!(codec::encode_typed(&"abc".to_owned()).unwrap(), "abc");
/// assert_eq!(codec::encode_typed(&Some("null".to_owned())).unwrap(), "\"null\"");
/// ```
///
/// # Errors
/// As [`encode`]; also if the type cannot read the string that it is written as.
pub fn encode_typed<T: Serialize + DeserializeOwned>(value: &T) -> Result<String, String> {
    let json = to_json(value)?;
    let Value::String(text) = &json else { return Ok(json.to_string()) };
    if decode::<T>(text).is_ok_and(|read| to_json(&read).is_ok_and(|again| again == json)) {
        return Ok(text.clone());
    }
    let quoted = json.to_string();
    match decode::<T>(&quoted) {
        Ok(_) => Ok(quoted),
        Err(error) => Err(format!("{} cannot read back what it writes: {error}", std::any::type_name::<T>())),
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
/// What the text is and what was expected: for a text that is JSON the error of reading it as JSON, for any other text the
/// error of reading it as a string.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let as_json = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    serde_json::from_value(Value::String(text.to_owned())).map_err(|as_string| {
        let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
        if is_json { as_json.to_string() } else { as_string.to_string() }
    })
}

/// Returns true if both payloads are the same text, or one is the other in quotes: [`encode`] and [`encode_typed`] of one
/// value.
#[inline(always)]
pub(crate) fn is_same_payload(one: &str, other: &str) -> bool {
    one == other || is_quoted_form(one, other) || is_quoted_form(other, one)
}

/// Returns true if `quoted` is the JSON string of `text`.
fn is_quoted_form(quoted: &str, text: &str) -> bool {
    quoted.starts_with('"') && serde_json::from_str::<String>(quoted).is_ok_and(|read| read == text)
}

/// The value as JSON, with the keys of every object in ascending order.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Value, String> {
    let mut json = serde_json::to_value(Checked::new(value)).map_err(|error| error.to_string())?;
    // Any crate of the program may enable `preserve_order`, which keeps the order of declaration instead.
    json.sort_all_objects();
    Ok(json)
}
