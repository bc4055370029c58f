//! Which instance ids and names are accepted.

use crate::limits::{MAX_INSTANCE_ID_BYTES, MAX_NAME_BYTES};

/// Fails if an instance id or a name is empty, too long or contains a control character. `what` says whose it is, as in
/// `instance id` or `activity name`.
///
/// ```
/// use everturn_core::check_name;
///
/// assert_eq!(check_name("instance id", "order-42"), Ok(()));
/// assert_eq!(check_name("instance id", "").unwrap_err(), "instance id is empty: use at least one character");
/// assert!(check_name("queue name", "two\nlines").unwrap_err().contains("control character U+000A"));
/// ```
///
/// # Errors
/// What is wrong and what to do.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("{what} is empty: use at least one character"));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "{what} has {} bytes, the limit is {MAX_NAME_BYTES}: use a shorter one and put the rest into the payload",
            name.len()
        ));
    }
    match name.chars().find(|letter| letter.is_control()) {
        None => Ok(()),
        Some(letter) => Err(format!(
            "{what} {name:?} contains the control character U+{:04X}: remove or replace it",
            u32::from(letter)
        )),
    }
}

/// [`check_name`] for the id of any instance, children included: a generated id is the id of the parent and a suffix that
/// does not count, up to [`MAX_INSTANCE_ID_BYTES`] in all.
///
/// ```
/// use everturn_core::check_instance_id;
///
/// let longest = "x".repeat(1_024);
/// assert_eq!(check_instance_id(&format!("{longest}::sub::2::sub::1_3")), Ok(()));
/// assert!(check_instance_id(&format!("{longest}x::sub::2")).is_err());
/// assert!(check_instance_id("::sub::2").is_err());
/// assert!(check_instance_id(&format!("order{}", "::sub::1".repeat(10_000))).is_err());
/// ```
///
/// # Errors
/// As [`check_name`].
pub fn check_instance_id(id: &str) -> Result<(), String> {
    if id.len() > MAX_INSTANCE_ID_BYTES {
        return Err(format!(
            "instance id has {} bytes, the limit with the suffixes of its parents is {MAX_INSTANCE_ID_BYTES}: use a \
             shorter one and put the rest into the payload",
            id.len()
        ));
    }
    let mut root = id;
    while let Some((parent, suffix)) = root.rsplit_once("::sub::") {
        if suffix.is_empty() || !suffix.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
            break;
        }
        root = parent;
    }
    check_name("instance id", root)
}
