//! Child orchestrations and detached orchestrations.

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OrchestrationContext;
use super::activities::{decoded, encoded};
use crate::action::Action;
use crate::future::{DurableFuture, ScheduleKind, result};
use crate::ids::{is_auto_generated_sub_orch_id, uses_reserved_marker};
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

    /// Runs a child orchestration with typed input and output.
    ///
    /// # Panics
    /// If the input cannot be serialised.
    #[track_caller]
    pub fn schedule_sub_orchestration_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        self.child(name.into(), None, None, encoded(input)).map(decoded)
    }

    /// Runs a child orchestration under an explicit id, with typed input and output.
    ///
    /// # Panics
    /// If the input cannot be serialised.
    #[track_caller]
    pub fn schedule_sub_orchestration_with_id_typed<In: Serialize, Out: DeserializeOwned + Send + 'static>(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: &In,
    ) -> DurableFuture<Result<Out, String>> {
        self.child(name.into(), None, Some(instance.into()), encoded(input)).map(decoded)
    }

    /// Starts a detached orchestration: it has no parent, and its result goes to no orchestration.
    ///
    /// # Panics
    /// If the id looks like that of a generated child.
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

    /// [`schedule_orchestration`](Self::schedule_orchestration) with a typed input.
    ///
    /// # Panics
    /// If the input cannot be serialised, or the id looks like that of a generated child.
    #[track_caller]
    pub fn schedule_orchestration_typed<In: Serialize>(
        &self,
        name: impl Into<String>,
        instance: impl Into<String>,
        input: &In,
    ) {
        self.detached(name.into(), None, instance.into(), encoded(input));
    }

    /// Starts an exact version of a detached orchestration.
    ///
    /// # Panics
    /// If the id looks like that of a generated child.
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
    /// If the input cannot be serialised, or the id looks like that of a generated child.
    #[track_caller]
    pub fn schedule_orchestration_versioned_typed<In: Serialize>(
        &self,
        name: impl Into<String>,
        version: Option<String>,
        instance: impl Into<String>,
        input: &In,
    ) {
        self.detached(name.into(), version, instance.into(), encoded(input));
    }

    #[track_caller]
    fn child(
        &self,
        name: String,
        version: Option<String>,
        instance: Option<String>,
        input: String,
    ) -> DurableFuture<Result<String, String>> {
        let kind = ScheduleKind::SubOrchestration { token: 0 };
        if let Some(id) = instance.as_deref().filter(|id| is_auto_generated_sub_orch_id(id)) {
            let refusal = format!("child instance id '{id}' begins with the reserved marker 'sub::'");
            return DurableFuture::known(kind, FutureResult::Failed(refusal), result);
        }
        let action = |_: &mut ReplayState| Action::SubOrchestration { name, version, instance, input };
        DurableFuture::emit(&self.shared, kind, Location::caller(), action, result)
    }

    #[track_caller]
    fn detached(&self, name: String, version: Option<String>, instance: String, input: String) {
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
