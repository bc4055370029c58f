//! Activities, with and without retries.

use std::future::Future;
use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OrchestrationContext;
use super::expected_names::expect_name;
use super::typed_payloads::{self, Callee};
use crate::action::Action;
use crate::combinators::Either2;
use crate::future::{DurableFuture, ScheduleKind, result};
use crate::replay_state::ReplayState;
use crate::retry::RetryPolicy;

/// An activity call and its source location.
#[derive(Clone)]
struct ActivityCall {
    name: String,
    input: String,
    session_id: Option<String>,
    location: &'static Location<'static>,
}

impl OrchestrationContext {
    /// Runs an activity. If it fails, the future returns the text of the error.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn checkout(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     // Both run at the same time; each outcome is recorded once.
    ///     let payment = ctx.schedule_activity("Charge", order.clone());
    ///     let parcel = ctx.schedule_activity("Pack", order);
    ///     Ok(format!("{}, {}", payment.await?, parcel.await?))
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_activity(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.call(ActivityCall::new(name, input, None))
    }

    /// Runs an activity with typed input and output. Strings are sent as they are: [`codec`](crate::codec) says which of
    /// them are read as another value.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn total(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     let cents: u64 = ctx.schedule_activity_typed("SumUp", &vec![order, "postage".to_owned()]).await?;
    ///     Ok(format!("{}.{:02}", cents / 100, cents % 100))
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_activity_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        let call = ActivityCall::typed(name, input, None);
        let decoded = call.result_decoder();
        self.call(call).map(decoded)
    }

    /// Runs an activity on the worker that owns the session.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn transcode(ctx: OrchestrationContext, film: String) -> Result<String, String> {
    ///     // Both run on the same worker, so that the second activity finds the file of the first.
    ///     let session = format!("film-{film}");
    ///     let file = ctx.schedule_activity_on_session("Download", film, session.clone()).await?;
    ///     ctx.schedule_activity_on_session("Encode", file, session).await
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_activity_on_session(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        session_id: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.call(ActivityCall::new(name, input, Some(session_id.into())))
    }

    /// Runs an activity on the worker that owns the session, with typed input and output.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    pub fn schedule_activity_on_session_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
        session_id: impl Into<String>,
    ) -> DurableFuture<Result<Out, String>> {
        let call = ActivityCall::typed(name, input, Some(session_id.into()));
        let decoded = call.result_decoder();
        self.call(call).map(decoded)
    }

    /// Runs an activity until it succeeds or the policy allows no further attempt; then it returns the last error.
    ///
    /// The first attempt begins with the call, so calls that are made before the first await run at the same time.
    /// Further attempts are made while the future is polled. Dropping the future cancels the attempt.
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn_core::{OrchestrationContext, RetryPolicy};
    ///
    /// async fn charge(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     let policy = RetryPolicy::new(5).with_timeout(Duration::from_secs(30));
    ///     ctx.schedule_activity_with_retry("Charge", order, policy).await
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_activity_with_retry(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        policy: RetryPolicy,
    ) -> impl Future<Output = Result<String, String>> {
        self.retry(ActivityCall::new(name, input, None), policy)
    }

    /// [`schedule_activity_with_retry`](Self::schedule_activity_with_retry) with typed input and output.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    pub fn schedule_activity_with_retry_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
        policy: RetryPolicy,
    ) -> impl Future<Output = Result<Out, String>> {
        let call = ActivityCall::typed(name, input, None);
        let decoded = call.result_decoder();
        let attempts = self.retry(call, policy);
        async move { decoded(attempts.await) }
    }

    /// [`schedule_activity_with_retry`](Self::schedule_activity_with_retry) on the worker that owns the session.
    #[track_caller]
    pub fn schedule_activity_with_retry_on_session(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
        policy: RetryPolicy,
        session_id: impl Into<String>,
    ) -> impl Future<Output = Result<String, String>> {
        self.retry(ActivityCall::new(name, input, Some(session_id.into())), policy)
    }

    /// [`schedule_activity_with_retry_on_session`](Self::schedule_activity_with_retry_on_session) with typed input and
    /// output.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    pub fn schedule_activity_with_retry_on_session_typed<
        In: Serialize,
        Out: DeserializeOwned + Send + 'static,
    >(
        &self,
        name: impl Into<String>,
        input: &In,
        policy: RetryPolicy,
        session_id: impl Into<String>,
    ) -> impl Future<Output = Result<Out, String>> {
        let call = ActivityCall::typed(name, input, Some(session_id.into()));
        let decoded = call.result_decoder();
        let attempts = self.retry(call, policy);
        async move { decoded(attempts.await) }
    }

    /// Runs one of the engine's own activities.
    #[track_caller]
    pub(super) fn system_call(&self, name: &str, input: String) -> DurableFuture<Result<String, String>> {
        self.call(ActivityCall::new(name, input, None))
    }

    fn call(&self, call: ActivityCall) -> DurableFuture<Result<String, String>> {
        let ActivityCall { name, input, session_id, location } = call;
        let kind = ScheduleKind::Activity { name: name.clone() };
        let action = |_: &mut ReplayState| Action::Activity { name, input, session_id, tag: None };
        DurableFuture::emit(&self.shared, kind, location, action, result)
    }

    fn retry(
        &self,
        call: ActivityCall,
        policy: RetryPolicy,
    ) -> impl Future<Output = Result<String, String>> + Send + use<> {
        let ctx = self.clone();
        // The first attempt and its deadline begin with the call, as every other `schedule_*` does.
        let mut attempted = self.begin_attempt(&call, &policy);
        async move {
            let mut attempt = 1;
            loop {
                let outcome = match attempted {
                    (activity, None) => activity.await,
                    (activity, Some(deadline)) => match ctx.select2(activity, deadline).await {
                        Either2::First(outcome) => outcome,
                        Either2::Second(()) => return Err("timeout: activity timed out".to_owned()),
                    },
                };
                match outcome {
                    Ok(value) => return Ok(value),
                    Err(error) if attempt >= policy.max_attempts => return Err(error),
                    Err(error) => ctx.trace_warn(format!(
                        "activity {} failed (attempt {attempt} of {}): {error}",
                        call.name, policy.max_attempts
                    )),
                }
                let delay = policy.delay_for_attempt(attempt);
                if !delay.is_zero() {
                    ctx.timer(delay, call.location).await;
                }
                attempt += 1;
                attempted = ctx.begin_attempt(&call, &policy);
            }
        }
    }

    /// Begins one attempt: the activity and, after it, the timer that ends the attempt.
    fn begin_attempt(
        &self,
        call: &ActivityCall,
        policy: &RetryPolicy,
    ) -> (DurableFuture<Result<String, String>>, Option<DurableFuture<()>>) {
        let activity = self.call(call.clone());
        (activity, policy.timeout.map(|timeout| self.timer(timeout, call.location)))
    }
}

impl ActivityCall {
    #[track_caller]
    fn new(name: impl Into<String>, input: impl Into<String>, session_id: Option<String>) -> Self {
        let name = name.into();
        expect_name("activity name", &name);
        if let Some(session_id) = &session_id {
            expect_name("session id", session_id);
        }
        Self { name, input: input.into(), session_id, location: Location::caller() }
    }

    /// A call with a typed input.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    fn typed<In: Serialize>(name: impl Into<String>, input: &In, session_id: Option<String>) -> Self {
        let name = name.into();
        let input = typed_payloads::encoded_input(Callee::Activity(&name), input);
        Self::new(name, input, session_id)
    }

    /// Decodes the call's result.
    fn result_decoder<Out: DeserializeOwned>(
        &self,
    ) -> impl FnOnce(Result<String, String>) -> Result<Out, String> + Send + use<Out> {
        let name = self.name.clone();
        move |result| typed_payloads::decoded_result(Callee::Activity(&name), result)
    }
}
