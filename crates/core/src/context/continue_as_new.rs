//! Ending an execution and beginning the next.

use std::future::Pending;
use std::panic::Location;

use serde::Serialize;

use super::OrchestrationContext;
use crate::action::Action;
use crate::codec;

impl OrchestrationContext {
    /// Ends this execution and begins the next with an empty history and this input, at the version that the registry
    /// chooses. The call itself takes effect; the returned future never ends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn every_hour(ctx: OrchestrationContext, round: String) -> Result<String, String> {
    ///     let number: u64 = round.parse().unwrap_or(0);
    ///     ctx.schedule_activity("CleanUp", round).await?;
    ///     ctx.schedule_timer(Duration::from_secs(3600)).await;
    ///     // An endless loop would let the history grow without bound.
    ///     ctx.continue_as_new((number + 1).to_string()).await
    /// }
    /// ```
    #[track_caller]
    pub fn continue_as_new(&self, input: impl Into<String>) -> Pending<Result<String, String>> {
        self.successor(input.into(), None)
    }

    /// [`continue_as_new`](Self::continue_as_new) with a typed input. A string is sent as it is: [`codec`] says which
    /// strings are read as another value.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    pub fn continue_as_new_typed<In: Serialize>(&self, input: &In) -> Pending<Result<String, String>> {
        let input = codec::encode(input)
            .unwrap_or_else(|error| panic!("encoding the input of the next execution: {error}"));
        self.successor(input, None)
    }

    /// [`continue_as_new`](Self::continue_as_new) at an exact version.
    #[track_caller]
    pub fn continue_as_new_versioned(
        &self,
        version: impl Into<String>,
        input: impl Into<String>,
    ) -> Pending<Result<String, String>> {
        self.successor(input.into(), Some(version.into()))
    }

    #[track_caller]
    fn successor(&self, input: String, version: Option<String>) -> Pending<Result<String, String>> {
        self.shared.emit(Location::caller(), None, |state| {
            state.continue_as_new_asked = true;
            Action::ContinueAsNew { input, version }
        });
        std::future::pending()
    }
}
