//! Polling the code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use super::{Execution, TurnClock, panic_text, turn_limit};
use crate::limits::MAX_DECISIONS_PER_TURN;
use crate::{AppErrorKind, ErrorDetails};

/// The failure of code that waits although no event can end its wait.
const NOT_DURABLE: &str = "the orchestration waits on something that is not durable: only futures made by its context \
     survive a restart. Use ctx.schedule_timer instead of a sleep, ctx.schedule_activity for I/O and for work on other \
     tasks or threads, and ctx.schedule_wait or ctx.dequeue_event for what comes from outside";

impl Execution {
    /// Polls the code if something was delivered to it, and takes its actions. Code that wakes itself in a poll is polled
    /// again before the next event.
    pub(super) fn poll_if_owed(&mut self, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        while self.must_poll && self.output.is_none() {
            self.must_poll = false;
            self.poll(clock)?;
            if self.must_poll {
                self.decisions += 1;
            }
            // A loop in the code that never waits would otherwise fill the memory with its actions.
            if self.decisions + self.emitted.len() > MAX_DECISIONS_PER_TURN {
                return Err(turn_limit());
            }
        }
        Ok(())
    }

    fn poll(&mut self, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        {
            let mut state = self.shared.lock();
            state.now_ms = clock.store_ms();
            state.polling = true;
        }
        self.self_wake.begin_poll();
        let (code, shared, self_wake) = (&mut self.code, &self.shared, &self.self_wake);
        let mut cx = Context::from_waker(&self.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let output = match code.as_mut()?.as_mut().poll(&mut cx) {
                Poll::Ready(output) => output,
                Poll::Pending => {
                    let state = shared.lock();
                    if self_wake.is_woken()
                        || state.continue_as_new_asked
                        || state.waits_on_something_durable()
                    {
                        return None;
                    }
                    Err(NOT_DURABLE.to_owned())
                }
            };
            // Dropped within the poll, so that the futures it still holds are dropped like those of its locals.
            *code = None;
            Some(output)
        }));
        self.self_wake.end_poll();
        let is_over_limit = {
            let mut state = self.shared.lock();
            state.polling = false;
            self.emitted.extend(std::mem::take(&mut state.emitted));
            state.turn_limit_hit
        };
        // The lock is released: what the code panicked with may own durable futures, and dropping those takes it.
        let polled = polled.map_err(describe_panic);
        if is_over_limit {
            return Err(turn_limit());
        }
        self.output = polled?;
        self.must_poll = self.output.is_none() && self.self_wake.is_woken();
        Ok(())
    }
}

/// The failure of code that panicked. What it panicked with is dropped here, and a panic of that is ignored.
fn describe_panic(panic: Box<dyn Any + Send>) -> ErrorDetails {
    let text = panic_text(panic.as_ref()).unwrap_or("orchestration panicked");
    let details = ErrorDetails::application(AppErrorKind::Panicked, text);
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Its destructor may panic as well.
        std::mem::forget(second);
    }
    details
}
