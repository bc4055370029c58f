//! The custom status of an instance.

use std::panic::Location;

use super::OrchestrationContext;
use crate::action::Action;

impl OrchestrationContext {
    /// Sets the text that clients see beside the status of this instance. It survives continue-as-new.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    ///     ctx.set_custom_status("charging");
    ///     ctx.schedule_activity("Charge", id.clone()).await?;
    ///     ctx.set_custom_status("shipping");
    ///     ctx.schedule_activity("Ship", id).await
    /// }
    /// ```
    #[track_caller]
    pub fn set_custom_status(&self, status: impl Into<String>) {
        self.change_custom_status(Some(status.into()));
    }

    /// Clears the custom status.
    #[track_caller]
    pub fn reset_custom_status(&self) {
        self.change_custom_status(None);
    }

    /// The custom status as this execution last set it, or as it was carried over.
    pub fn get_custom_status(&self) -> Option<String> {
        self.shared.lock().custom_status.clone()
    }

    #[track_caller]
    fn change_custom_status(&self, status: Option<String>) {
        self.shared.emit(Location::caller(), None, |state| {
            state.custom_status.clone_from(&status);
            Action::SetCustomStatus { status }
        });
    }
}
