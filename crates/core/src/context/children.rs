//! Child orchestrations and detached orchestrations.

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OrchestrationContext;
use super::expected_names::expect_name;
use super::typed_payloads::{Callee, decoded_result, encoded_input};
use crate::action::Action;
use crate::future::{DurableFuture, ScheduleKind, result};
use crate::ids::{is_auto_generated_sub_orch_id, uses_reserved_marker};
use crate::names::check_name;
use crate::replay_state::{FutureResult, ReplayState};

impl OrchestrationContext {
    /// Runs a child orchestration under a generated id.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, items: String) -> Result<String, String> {
    ///     let parcels = items.lines().map(|item| ctx.schedule_sub_orchestration("Ship", item)).collect();
    ///     let numbers: Result<Vec<String>, String> = ctx.join(parcels).await.into_iter().collect();
    ///     Ok(numbers?.join(", "))
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_sub_orchestration(
        &self,
        name: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.child(name.into(), None, None, input.into())
    }

    /// Runs a child orchestration under an explicit id.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    ///     // Clients can signal, query and cancel the child under this id.
    ///     ctx.schedule_sub_orchestration_with_id("Ship", format!("parcel-of-{id}"), id).await
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.child(name.into(), None, Some(instance.into()), input.into())
    }

    /// Runs an exact version of a child orchestration; `None` leaves the choice to the registry.
    #[track_caller]
    pub fn schedule_sub_orchestration_versioned(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.child(name.into(), version, None, input.into())
    }

    /// Runs an exact version of a child orchestration under an explicit id.
    #[track_caller]
    pub fn schedule_sub_orchestration_versioned_with_id(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) -> DurableFuture<Result<String, String>> {
        self.child(name.into(), version, Some(instance.into()), input.into())
    }

    /// Runs a child orchestration with typed input and output. Strings are sent as they are: [`codec`](crate::codec) says
    /// which of them are read as another value.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    pub fn schedule_sub_orchestration_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        self.typed_child(name.into(), None, input)
    }

    /// Runs a child orchestration under an explicit id, with typed input and output.
    ///
    /// # Panics
    /// If the input cannot be encoded.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        self.typed_child(name.into(), Some(instance.into()), input)
    }

    /// Starts a detached orchestration: it has no parent, and its result goes to no orchestration.
    ///
    /// # Panics
    /// If the id looks like that of a generated child, or the id or the name is empty, too long or contains a control
    /// character.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    ///     ctx.schedule_orchestration("AskForReview", format!("review-of-{id}"), id.clone());
    ///     Ok(id)
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_orchestration(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) {
        self.detached(name.into(), None, instance.into(), input.into());
    }

    /// [`schedule_orchestration`](Self::schedule_orchestration) with a typed input. A string is sent as it is:
    /// [`codec`](crate::codec) says which strings are read as another value.
    ///
    /// # Panics
    /// If the input cannot be encoded, or the id looks like that of a generated child.
    #[track_caller]
    pub fn schedule_orchestration_typed<In: Serialize>(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: &In,
    ) {
        let name = name.into();
        let input = encoded_input(Callee::Orchestration(&name), input);
        self.detached(name, None, instance.into(), input);
    }

    /// Starts an exact version of a detached orchestration.
    ///
    /// # Panics
    /// If the id looks like that of a generated child, or the id or the name is empty, too long or contains a control
    /// character.
    #[track_caller]
    pub fn schedule_orchestration_versioned(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: impl Into<String>,
    ) {
        self.detached(name.into(), version, instance.into(), input.into());
    }

    /// [`schedule_orchestration_versioned`](Self::schedule_orchestration_versioned) with a typed input.
    ///
    /// # Panics
    /// If the input cannot be encoded, or the id looks like that of a generated child.
    #[track_caller]
    pub fn schedule_orchestration_versioned_typed<In: Serialize>(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: &In,
    ) {
        let name = name.into();
        let input = encoded_input(Callee::Orchestration(&name), input);
        self.detached(name, version, instance.into(), input);
    }

    #[track_caller]
    fn typed_child<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: String,
        instance: Option<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        let input = encoded_input(Callee::Orchestration(&name), input);
        let running = self.child(name.clone(), None, instance, input);
        running.map(move |result| decoded_result(Callee::Orchestration(&name), result))
    }

    #[track_caller]
    fn child(
        &self,
        name: String,
        version: Option<String>,
        instance: Option<String>,
        input: String,
    ) -> DurableFuture<Result<String, String>> {
        expect_name("orchestration name", &name);
        let kind = ScheduleKind::SubOrchestration { token: 0 };
        if let Some(refusal) = instance.as_deref().and_then(|id| check_child_id(id).err()) {
            return DurableFuture::known(kind, FutureResult::Failed(refusal), result);
        }
        let action = |_: &mut ReplayState| Action::SubOrchestration { name, version, instance, input };
        DurableFuture::emit(&self.shared, kind, Location::caller(), action, result)
    }

    #[track_caller]
    fn detached(&self, name: String, version: Option<String>, instance: String, input: String) {
        expect_name("orchestration name", &name);
        expect_name("instance id", &instance);
        assert!(
            !uses_reserved_marker(&instance),
            "instance id '{instance}' uses the reserved sub-orchestration marker 'sub::'"
        );
        self.shared.emit(Location::caller(), None, |_| Action::StartDetached {
            name,
            version,
            instance,
            input,
        });
    }
}

/// Fails if a child must not have this explicit id.
fn check_child_id(id: &str) -> Result<(), String> {
    if is_auto_generated_sub_orch_id(id) {
        return Err(format!("child instance id '{id}' begins with the reserved marker 'sub::'"));
    }
    check_name("child instance id", id)
}
