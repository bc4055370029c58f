//! Texts that the server cannot hold.

use everturn_provider::encoded::{StoredActivity, StoredMessage};
use everturn_provider::store::HandlerKey;
use everturn_provider::{ProviderError, TagFilter};

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

/// Checks what an activity is stored with.
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

/// Checks what a message is stored with.
pub(crate) fn check_message(operation: &str, message: &StoredMessage) -> Result<(), ProviderError> {
    check_texts(operation, [("the id of an instance", Some(message.instance_id.as_str()))])
}

/// Checks the handler that a runtime lacks.
pub(crate) fn check_handler(operation: &str, handler: Option<&HandlerKey>) -> Result<(), ProviderError> {
    let name = handler.map(|handler| handler.name.as_str());
    let version = handler.and_then(|handler| handler.version.as_deref());
    check_texts(operation, [("the name of a handler", name), ("the version of a handler", version)])
}

/// Checks the tags that a worker takes.
pub(crate) fn check_tags(operation: &str, tags: &TagFilter) -> Result<(), ProviderError> {
    match tags {
        TagFilter::Tags(tags) | TagFilter::DefaultAnd(tags) => {
            check_texts(operation, tags.iter().map(|tag| ("a tag", Some(tag.as_str()))))
        }
        TagFilter::DefaultOnly | TagFilter::Any | TagFilter::None => Ok(()),
    }
}
