//! The context of a running activity.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::client::Client;

/// Identity, cancellation signal, log methods and client of a running activity. Cheap to clone.
///
/// ```
/// use everturn::ActivityContext;
/// use everturn::runtime::registry::ActivityRegistry;
///
/// let activities = ActivityRegistry::builder()
///     .register("export", |ctx: ActivityContext, table: String| async move {
///         ctx.trace_info(format!("exporting {table}"));
///         for _page in 0..100 {
///             if ctx.is_cancelled() {
///                 return Err("the export was cancelled".to_owned());
///             }
///         }
///         Ok("done".to_owned())
///     })
///     .build();
/// assert!(activities.has("export"));
/// ```
#[derive(Clone)]
pub struct ActivityContext(Arc<ActivityInvocation>);

/// One attempt at an activity, from which the worker makes an [`ActivityContext`].
pub(crate) struct ActivityInvocation {
    /// The instance that scheduled it.
    pub(crate) instance: String,
    /// The instance's execution.
    pub(crate) execution_id: u64,
    /// Registered name of the instance's orchestration, or `unknown`.
    pub(crate) orchestration_name: String,
    /// Version of its handler, or `unknown`.
    pub(crate) orchestration_version: String,
    /// Registered name of the activity.
    pub(crate) activity_name: String,
    /// Id of its schedule event.
    pub(crate) activity_id: u64,
    /// Id of the worker slot that runs it.
    pub(crate) worker_id: String,
    /// The session it is bound to.
    pub(crate) session_id: Option<String>,
    /// The tag that routed it.
    pub(crate) tag: Option<String>,
    /// Cancelled when the activity is.
    pub(crate) cancellation: CancellationToken,
    /// A client on the store that the activity was fetched from.
    pub(crate) client: Client,
}

/// Emits one line of an activity. A macro, because the level is part of the call site.
macro_rules! trace_activity {
    ($level:ident, $context:expr, $message:expr) => {{
        let invocation = &*$context.0;
        tracing::$level!(
            target: "everturn::activity",
            instance_id = %invocation.instance,
            execution_id = %invocation.execution_id,
            orchestration_name = %invocation.orchestration_name,
            orchestration_version = %invocation.orchestration_version,
            activity_name = %invocation.activity_name,
            activity_id = %invocation.activity_id,
            worker_id = %invocation.worker_id,
            "{}",
            $message.into()
        );
    }};
}

impl ActivityContext {
    pub(crate) fn new(invocation: ActivityInvocation) -> Self {
        Self(Arc::new(invocation))
    }

    /// The instance that scheduled this activity.
    pub fn instance_id(&self) -> &str {
        &self.0.instance
    }

    /// The instance's execution.
    pub fn execution_id(&self) -> u64 {
        self.0.execution_id
    }

    /// Registered name of the instance's orchestration; `unknown` if the instance was deleted.
    pub fn orchestration_name(&self) -> &str {
        &self.0.orchestration_name
    }

    /// Version of the instance's orchestration; `unknown` if the instance was deleted.
    pub fn orchestration_version(&self) -> &str {
        &self.0.orchestration_version
    }

    /// Registered name of this activity.
    pub fn activity_name(&self) -> &str {
        &self.0.activity_name
    }

    /// Id of the worker slot that runs this activity.
    pub fn worker_id(&self) -> &str {
        &self.0.worker_id
    }

    /// The session this activity is bound to.
    pub fn session_id(&self) -> Option<&str> {
        self.0.session_id.as_deref()
    }

    /// The tag that routed this activity to this worker.
    pub fn tag(&self) -> Option<&str> {
        self.0.tag.as_deref()
    }

    /// Logs at INFO with this activity's identity.
    pub fn trace_info(&self, message: impl Into<String>) {
        trace_activity!(info, self, message);
    }

    /// Logs at WARN with this activity's identity.
    pub fn trace_warn(&self, message: impl Into<String>) {
        trace_activity!(warn, self, message);
    }

    /// Logs at ERROR with this activity's identity.
    pub fn trace_error(&self, message: impl Into<String>) {
        trace_activity!(error, self, message);
    }

    /// Logs at DEBUG with this activity's identity.
    pub fn trace_debug(&self, message: impl Into<String>) {
        trace_activity!(debug, self, message);
    }

    /// Returns true if this activity was cancelled. It is aborted when the grace period ends.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancellation.is_cancelled()
    }

    /// Returns when this activity is cancelled.
    pub async fn cancelled(&self) {
        self.0.cancellation.cancelled().await;
    }

    /// A token that is cancelled when this activity is, to pass to other tasks.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.0.cancellation.clone()
    }

    /// A client on the store that this activity was fetched from.
    pub fn get_client(&self) -> Client {
        self.0.client.clone()
    }
}

impl fmt::Debug for ActivityContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let invocation = &*self.0;
        f.debug_struct("ActivityContext")
            .field("instance_id", &invocation.instance)
            .field("execution_id", &invocation.execution_id)
            .field("orchestration_name", &invocation.orchestration_name)
            .field("orchestration_version", &invocation.orchestration_version)
            .field("activity_name", &invocation.activity_name)
            .field("activity_id", &invocation.activity_id)
            .field("worker_id", &invocation.worker_id)
            .field("session_id", &invocation.session_id)
            .field("tag", &invocation.tag)
            .field("cancelled", &invocation.cancellation.is_cancelled())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl ActivityContext {
    /// The context of an activity on this store.
    pub(crate) fn for_test(store: Arc<dyn everturn_provider::Provider>) -> Self {
        Self::new(ActivityInvocation {
            instance: "order-42".into(),
            execution_id: 3,
            orchestration_name: "order".into(),
            orchestration_version: "1.2.0".into(),
            activity_name: "charge".into(),
            activity_id: 5,
            worker_id: "work-0-ab12".into(),
            session_id: None,
            tag: Some("gpu".into()),
            cancellation: CancellationToken::new(),
            client: Client::new(store),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Mutex, PoisonError};

    use everturn_provider::MemoryProvider;
    use serde_json::{Value, json};

    use super::*;

    /// The bytes that a subscriber wrote.
    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn context() -> ActivityContext {
        ActivityContext::for_test(Arc::new(MemoryProvider::new()))
    }

    #[test]
    fn traces_carry_the_identity_of_the_activity() {
        let written = LogBuffer::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || context().trace_warn("low on paper"));
        let bytes = written.0.lock().expect("no writer panicked").clone();
        let line: Value = serde_json::from_slice(&bytes).expect("one line of JSON");
        assert_eq!((&line["target"], &line["level"]), (&json!("everturn::activity"), &json!("WARN")));
        let fields = json!({
            "message": "low on paper",
            "instance_id": "order-42",
            "execution_id": "3",
            "orchestration_name": "order",
            "orchestration_version": "1.2.0",
            "activity_name": "charge",
            "activity_id": "5",
            "worker_id": "work-0-ab12",
        });
        assert_eq!(line["fields"], fields);
    }

    #[tokio::test]
    async fn cancellation_reaches_every_clone() {
        let ctx = context();
        let copy = ctx.clone();
        assert!(!copy.is_cancelled());
        ctx.cancellation_token().cancel();
        copy.cancelled().await;
        assert!(copy.is_cancelled());
    }

    #[test]
    fn debug_shows_the_activity_id() {
        let text = format!("{:?}", context());
        assert!(text.starts_with("ActivityContext {") && text.contains("activity_id: 5"), "{text}");
    }
}
