//! Faults of single calls.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::TurnCommit;
use tokio::time::{Instant, sleep};

use crate::fault_plan::Fault;
use crate::process::Process;

/// What kind of call it is: that decides which faults it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// It changes nothing.
    Read,
    /// It changes something.
    Write,
    /// It changes something, and can take effect after its caller got an error.
    Sent,
    /// Like [`Sent`](Self::Sent), and its caller repeats it if it is refused.
    Outcome,
    /// Like [`Outcome`](Self::Outcome), and it does what else takes four calls.
    Step,
}

impl CallKind {
    /// How many calls it stands for: so much more often it has a fault.
    pub(crate) fn calls(self) -> u64 {
        if self == Self::Step { 4 } else { 1 }
    }

    pub(crate) fn allows(self, fault: Fault) -> bool {
        match fault {
            Fault::ErrorBefore | Fault::ErrorAfter | Fault::CrashBefore | Fault::Freeze => true,
            Fault::CrashAfter | Fault::StallBefore | Fault::StallAfter => self != Self::Read,
            Fault::Late => matches!(self, Self::Sent | Self::Outcome | Self::Step),
            Fault::Refusal => matches!(self, Self::Write | Self::Outcome | Self::Step),
            Fault::LostBatch | Fault::LostTurn | Fault::VerbOutage => false,
            Fault::Restart | Fault::NodeClock | Fault::StoreClock => false,
            Fault::ReadError | Fault::WriteError | Fault::SyncError | Fault::DiskFull | Fault::PowerCut => {
                false
            }
        }
    }
}

/// Decides which calls of a process fail, and records what happened.
pub trait CallFaults: Send + Sync {
    /// The fault of the next call, and how long the call takes before it reaches the store.
    fn draw(&self, call: CallKind, verb: &'static str) -> (Option<Fault>, Option<Duration>);

    /// How long the answer of a call takes.
    fn answer_delay(&self) -> Option<Duration>;

    /// How much later a call takes effect whose caller got an error already. What this returns is dropped afterwards.
    fn late_by(&self) -> (Duration, Box<dyn Send>);

    /// A turn is about to be committed that was taken under these locks. Called before any fault of that call.
    fn turn_decided(&self, commit: &TurnCommit, tokens: &[&str]);

    /// A fault takes effect.
    fn struck(&self, fault: Fault, verb: &'static str, subject: &str);

    /// The wrapped store answered.
    fn answered(&self, verb: &'static str, subject: &str, error: Option<&ProviderError>);

    /// The wrapped store answered a call whose caller got an error long ago.
    fn answered_late(&self, verb: &'static str, subject: &str, answer: &dyn fmt::Debug);

    /// The error that the caller gets instead of this one.
    fn error_of(&self, verb: &'static str, error: ProviderError) -> ProviderError;
}

/// The faults of the calls of one process.
pub(super) struct FaultyCalls {
    pub(super) process: Arc<Process>,
    /// How long the process is frozen, and a call stalled.
    pub(super) stall: Duration,
    pub(super) faults: Arc<dyn CallFaults>,
}

impl FaultyCalls {
    /// Makes a call, with its faults around it.
    pub(super) async fn call<T>(
        &self,
        kind: CallKind,
        verb: &'static str,
        subject: &str,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let fault = self.before(kind, verb, subject).await?;
        let answer = call.await.map_err(|error| self.faults.error_of(verb, error));
        self.after(fault, verb, subject, answer.as_ref().err()).await?;
        answer
    }

    /// The same for a call that can take effect after its caller got an error, whatever becomes of the process.
    pub(super) async fn send<T: fmt::Debug>(
        &self,
        kind: CallKind,
        verb: &'static str,
        subject: &str,
        effect: impl Future<Output = Result<T, ProviderError>> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let fault = self.before(kind, verb, subject).await?;
        if fault == Some(Fault::Late) {
            self.faults.struck(Fault::Late, verb, subject);
            let (faults, subject) = (Arc::clone(&self.faults), subject.to_owned());
            let (wait, under_way) = faults.late_by();
            tokio::spawn(async move {
                sleep(wait).await;
                let answer = effect.await;
                faults.answered_late(verb, &subject, &answer);
                drop(under_way);
            });
            return Err(ProviderError::retryable(verb, "injected: no answer"));
        }
        let answer = effect.await.map_err(|error| self.faults.error_of(verb, error));
        self.after(fault, verb, subject, answer.as_ref().err()).await?;
        answer
    }

    /// What happens before a call. Returns the fault that follows the call, or the error that comes instead of it.
    pub(super) async fn before(
        &self,
        kind: CallKind,
        verb: &'static str,
        subject: &str,
    ) -> Result<Option<Fault>, ProviderError> {
        self.process.running().await;
        let (fault, delay) = self.faults.draw(kind, verb);
        self.delay(delay).await;
        match fault {
            Some(Fault::ErrorBefore) => {
                self.faults.struck(Fault::ErrorBefore, verb, subject);
                return Err(ProviderError::retryable(verb, "injected before the call"));
            }
            Some(Fault::VerbOutage) => {
                let error = ProviderError::retryable(verb, "injected: this verb fails for a while");
                self.faults.answered(verb, subject, Some(&error));
                return Err(error);
            }
            Some(Fault::Refusal) => {
                self.faults.struck(Fault::Refusal, verb, subject);
                return Err(ProviderError::permanent(verb, "injected for good"));
            }
            Some(Fault::CrashBefore) => {
                self.faults.struck(Fault::CrashBefore, verb, subject);
                self.process.kill();
                return pending().await;
            }
            Some(Fault::StallBefore) => {
                self.faults.struck(Fault::StallBefore, verb, subject);
                sleep(self.stall).await;
                self.process.running().await;
            }
            Some(Fault::Freeze) => {
                self.faults.struck(Fault::Freeze, verb, subject);
                self.process.freeze(Instant::now() + self.stall);
                self.process.running().await;
            }
            _ => {}
        }
        Ok(fault)
    }

    /// What happens after a call.
    pub(super) async fn after(
        &self,
        fault: Option<Fault>,
        verb: &'static str,
        subject: &str,
        error: Option<&ProviderError>,
    ) -> Result<(), ProviderError> {
        self.faults.answered(verb, subject, error);
        if fault == Some(Fault::CrashAfter) {
            self.faults.struck(Fault::CrashAfter, verb, subject);
            self.process.kill();
        }
        self.process.running().await;
        if fault == Some(Fault::ErrorAfter) && error.is_none() {
            self.faults.struck(Fault::ErrorAfter, verb, subject);
            return Err(ProviderError::retryable(verb, "injected after the call"));
        }
        if fault == Some(Fault::StallAfter) {
            self.faults.struck(Fault::StallAfter, verb, subject);
            sleep(self.stall).await;
            self.process.running().await;
        }
        self.delay(self.faults.answer_delay()).await;
        Ok(())
    }

    /// Lets time pass; a delay of zero lets the other tasks run.
    async fn delay(&self, delay: Option<Duration>) {
        let Some(delay) = delay else { return };
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep(delay).await;
        }
        self.process.running().await;
    }
}
