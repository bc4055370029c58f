//! Child orchestrations, and orchestrations started on their own.

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::OrchestrationContext;
use super::activities::{decoded, encoded};
use crate::action::Action;
use crate::exchange::Outcome;
use crate::future::{DurableFuture, ScheduleKind, result};
use crate::ids::{is_auto_generated_sub_orch_id, uses_reserved_marker};

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

    /// Runs a child orchestration under an id of your own.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    ///     // Others can reach the child under this id: with signals, queries, a cancellation.
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

    /// Runs an exact version of a child orchestration under an id of your own.
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

    /// Runs a child orchestration under an id of your own, with typed input and output.
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

    /// Starts an orchestration that lives on its own; nobody waits for it.
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

    /// Starts an exact version of an orchestration that lives on its own.
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
        if let Some(id) = instance.as_deref().filter(|id| is_auto_generated_sub_orch_id(id)) {
            let refusal = format!("child instance id '{id}' begins with the reserved marker 'sub::'");
            let kind = ScheduleKind::SubOrchestration { token: 0 };
            return DurableFuture::known(kind, Outcome::Failed(refusal), result);
        }
        let scheduled = self.exchange.emit_for_result(Location::caller(), |_| Action::SubOrchestration {
            name,
            version,
            instance,
            input,
        });
        let kind =
            ScheduleKind::SubOrchestration { token: scheduled.as_ref().map_or(0, |(token, _)| *token) };
        DurableFuture::scheduled(&self.exchange, kind, scheduled, result)
    }

    #[track_caller]
    fn detached(&self, name: String, version: Option<String>, instance: String, input: String) {
        assert!(
            !uses_reserved_marker(&instance),
            "instance id '{instance}' uses the reserved sub-orchestration marker 'sub::'"
        );
        self.exchange.emit(Location::caller(), |_| Action::StartDetached { name, version, instance, input });
    }
}
