//! Texts that the server cannot hold.

use everturn_provider::ProviderError;
use everturn_provider::encoded::StoredActivity;

/// Refuses texts with a NUL character, which a column of type `text` cannot hold. Payloads are stored as JSON, which has none.
pub(crate) fn check_texts<'a>(
    operation: &str,
    texts: impl IntoIterator<Item = (&'static str, Option<&'a str>)>,
) -> Result<(), ProviderError> {
    for (what, text) in texts {
        if text.is_some_and(|text| text.contains('\0')) {
            let message = format!("{what} contains a NUL character, which PostgreSQL cannot store");
            return Err(ProviderError::permanent(operation, message));
        }
    }
    Ok(())
}

/// The same for the texts of an activity.
pub(crate) fn check_activity(operation: &str, activity: &StoredActivity) -> Result<(), ProviderError> {
    check_texts(
        operation,
        [
            ("the id of an instance", Some(activity.instance_id.as_str())),
            ("the name of an activity", Some(activity.name.as_str())),
            ("a session", activity.session_id.as_deref()),
            ("a tag", activity.tag.as_deref()),
        ],
    )
}
