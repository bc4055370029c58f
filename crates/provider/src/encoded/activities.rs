//! Activities of the worker queue as tables hold them.

use everturn_core::WorkItem;

use super::encoded;
use crate::error::ProviderError;

/// An activity as it is stored.
#[derive(Debug)]
pub struct StoredActivity {
    /// The instance that scheduled it.
    pub instance_id: String,
    /// The execution that scheduled it.
    pub execution_id: i64,
    /// The event that scheduled it.
    pub activity_id: i64,
    /// The session that it is bound to.
    pub session_id: Option<String>,
    /// Its tag.
    pub tag: Option<String>,
    /// Its name.
    pub name: String,
    /// The activity as JSON.
    pub work_item: String,
}

impl StoredActivity {
    /// Encodes an activity; refuses any other item.
    pub fn encode(operation: &str, item: &WorkItem) -> Result<Self, ProviderError> {
        let WorkItem::ActivityExecute { instance, execution_id, id, name, session_id, tag, .. } = item else {
            return Err(ProviderError::permanent(
                operation,
                format!(
                    "only an ActivityExecute belongs into the worker queue, not a {}",
                    everturn_core::kind_of(item)
                ),
            ));
        };
        let fits = |what: &str, id: u64| {
            i64::try_from(id)
                .map_err(|_| ProviderError::permanent(operation, format!("{what} {id} is out of range")))
        };
        Ok(Self {
            instance_id: instance.clone(),
            execution_id: fits("execution id", *execution_id)?,
            activity_id: fits("activity id", *id)?,
            session_id: session_id.clone(),
            tag: tag.clone(),
            name: name.clone(),
            work_item: encoded(operation, serde_json::to_string(item))?,
        })
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.work_item.len()
    }
}
