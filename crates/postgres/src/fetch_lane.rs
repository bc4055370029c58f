//! The fetch lane: fetches that wait for work are served together, in transactions of their own on a connection of their own.
//!
//! It looks when a commit of this process made work, when a notification of another process came, when something becomes due,
//! and in any case once a second.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

use crate::callbacks::guarded_future;
use crate::commit_queue::CommitQueue;
use crate::due::{self, WakeDue};
use crate::error::ExchangeError;
use crate::link::Link;
use crate::parked_fetches::{ParkedTurnFetch, ParkedWorkFetch};
use crate::retry::{RareWarning, pause_after};
use crate::session::ServerSession;
use crate::shared::{News, Shared};
use crate::unknown_instance::DeleteOrphans;
use crate::{fetch_turns, fetch_work};

/// How long the lane waits at most before it looks at everything again.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// How long it waits for the commit lane.
const COMMIT_MAX: Duration = Duration::from_secs(2);

/// What callers send to the lane.
pub(crate) enum FetchCommand {
    Turns(ParkedTurnFetch),
    Work(ParkedWorkFetch),
}

/// What serves the fetches.
pub(crate) struct FetchLane {
    pub(crate) commands: UnboundedReceiver<FetchCommand>,
    pub(crate) commits: Arc<CommitQueue>,
    pub(crate) link: Link,
    pub(crate) shared: Arc<Shared>,
    pub(crate) turns: Vec<ParkedTurnFetch>,
    pub(crate) work: Vec<ParkedWorkFetch>,
    pub(crate) walk: fetch_turns::TurnWalk,
    pub(crate) warning: RareWarning,
}

/// What the next look is for.
#[derive(Debug, Clone, Copy, Default)]
struct NextLook {
    turns: bool,
    work: bool,
    due: bool,
}

impl NextLook {
    const FULL: Self = Self { turns: true, work: true, due: true };

    fn is_wanted(self) -> bool {
        self.turns || self.work || self.due
    }
}

/// What became of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Done,
    /// There may be more.
    Again,
    Failed,
}

impl FetchLane {
    /// Runs until the provider is closed.
    pub(crate) async fn run(mut self) {
        let mut look = NextLook::FULL;
        let mut last_full_look = Instant::now();
        // After a failure it does not look before this.
        let mut not_before = Instant::now();
        let mut failures = 0;
        while !self.shared.is_closed() {
            let moved = self.shared.clock.moved();
            self.turns.retain(|parked| !parked.reply.is_closed());
            self.work.retain(|parked| !parked.reply.is_closed());
            let hints = self.shared.take_hints();
            (look.turns, look.work) = (look.turns | hints.turns, look.work | hints.work);
            look.due |= self.shared.next_due_ms() <= self.shared.now_ms();
            if last_full_look.elapsed() >= LOOK_AT_LEAST_EVERY {
                last_full_look = Instant::now();
                look = NextLook::FULL;
            }
            if self.is_waited_for() && look.is_wanted() && not_before <= Instant::now() {
                let looked = self.look_guarded(look).await;
                if looked == Looked::Failed {
                    failures += 1;
                    not_before = Instant::now() + pause_after(failures);
                } else {
                    failures = 0;
                    look = NextLook::default();
                    if looked == Looked::Again {
                        // After the commands that have arrived meanwhile. What is due says so itself.
                        self.shared.want_look(true, false);
                    }
                }
            }
            let next_look = self.next_look(last_full_look, not_before);
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => {
                        self.park(command, &mut look);
                        while let Ok(command) = self.commands.try_recv() {
                            self.park(command, &mut look);
                        }
                    }
                    None => break,
                },
                () = self.shared.look_wanted() => {}
                () = moved => look = NextLook::FULL,
                () = tokio::time::sleep_until(next_look) => {}
            }
        }
        self.answer_none_to_all();
    }

    fn is_waited_for(&self) -> bool {
        !self.turns.is_empty() || !self.work.is_empty()
    }

    /// When the lane looks if nothing happens until then.
    fn next_look(&self, last_full_look: Instant, not_before: Instant) -> Instant {
        let (now, full_look) = (Instant::now(), last_full_look + LOOK_AT_LEAST_EVERY);
        if !self.is_waited_for() {
            // What becomes due meanwhile is found when a fetch is parked.
            return full_look.max(now + LOOK_AT_LEAST_EVERY);
        }
        let until_due_ms = self.shared.next_due_ms().saturating_sub(self.shared.now_ms()).max(1);
        let until_due =
            Duration::from_millis(u64::try_from(until_due_ms).unwrap_or(1)).min(LOOK_AT_LEAST_EVERY);
        full_look.min(now + until_due).max(not_before)
    }

    fn park(&mut self, command: FetchCommand, look: &mut NextLook) {
        match command {
            FetchCommand::Turns(parked) => {
                look.turns = true;
                self.turns.push(parked);
            }
            FetchCommand::Work(parked) => {
                look.work = true;
                self.work.push(parked);
            }
        }
    }

    fn answer_none_to_all(&mut self) {
        // Callers that left get no answer.
        self.turns.drain(..).for_each(|parked| drop(parked.reply.send(Ok(Vec::new()))));
        self.work.drain(..).for_each(|parked| drop(parked.reply.send(Ok(Vec::new()))));
    }

    /// Looks for work. If what the runtime is asked for panics, all fetches fail, because one of them does that each time.
    async fn look_guarded(&mut self, look: NextLook) -> Looked {
        match guarded_future("a look for work", self.look(look)).await {
            Some(looked) => looked,
            None => {
                self.link.forget();
                let message = "a bug: the look for work panicked";
                self.turns.iter_mut().for_each(|parked| parked.once = true);
                self.work.iter_mut().for_each(|parked| parked.once = true);
                self.fail_once(message);
                Looked::Failed
            }
        }
    }

    async fn look(&mut self, look: NextLook) -> Looked {
        let deadline = Instant::now() + self.link.connect_max();
        let connected = tokio::select! {
            biased;
            connected = self.link.session(deadline) => connected,
            () = self.shared.closed() => None,
        };
        let Some(session) = connected else {
            self.fail_once("the server cannot be reached");
            return Looked::Failed;
        };
        let shared = Arc::clone(&self.shared);
        let refreshed = session.within(shared.refresh_time(&session));
        match tokio::try_join!(biased; refreshed, self.look_with(&session, look)) {
            Ok(((), true)) => Looked::Again,
            Ok(((), false)) => Looked::Done,
            Err(error) => {
                self.link.roll_back(&session, error.failure()).await;
                if let Some(left_out) = self.warning.is_due() {
                    tracing::warn!(target: "everturn::providers::postgres", %error, left_out,
                        "looking for work failed; trying again");
                }
                self.fail_once(&error.to_string());
                Looked::Failed
            }
        }
    }

    /// Fetches that look only once are told that the store failed.
    fn fail_once(&mut self, message: &str) {
        let (once, parked) = std::mem::take(&mut self.turns).into_iter().partition(|parked| parked.once);
        self.turns = parked;
        let failed = |name: &str| ProviderError::retryable(name, message.to_owned());
        let once: Vec<ParkedTurnFetch> = once;
        once.into_iter().for_each(|parked| drop(parked.reply.send(Err(failed("fetch_turns")))));
        let (once, parked) = std::mem::take(&mut self.work).into_iter().partition(|parked| parked.once);
        self.work = parked;
        let once: Vec<ParkedWorkFetch> = once;
        once.into_iter().for_each(|parked| drop(parked.reply.send(Err(failed("fetch_work")))));
    }

    /// Returns whether there may be more.
    async fn look_with(&mut self, session: &ServerSession, look: NextLook) -> Result<bool, ExchangeError> {
        let mut again = false;
        if look.due || self.shared.is_test {
            again |= self.wake_due(session).await?;
        }
        if look.turns && !self.turns.is_empty() {
            let orphaned = session.within(fetch_turns::orphaned(session)).await?;
            if !orphaned.is_empty() {
                again |= self.decided(DeleteOrphans { keys: orphaned }).await;
            }
            again |= self.serve_turns(session).await?;
        }
        if look.work && !self.work.is_empty() {
            self.serve_work(session).await?;
        }
        Ok(again)
    }

    /// Makes due rows visible, and ends delays and locks. Returns whether there may be more.
    async fn wake_due(&mut self, session: &ServerSession) -> Result<bool, ExchangeError> {
        let due_ms = self.shared.take_due_ms();
        let test_now_ms = self.shared.test_now_ms();
        let found = session.within(due::look(session, test_now_ms)).await.inspect_err(|_| {
            self.shared.due_at(due_ms);
        })?;
        if let Some(next_ms) = found.next_ms {
            self.shared.due_at(next_ms);
        }
        if found.woke_activities {
            self.shared.want_look(false, true);
        }
        if found.keys.is_empty() {
            return Ok(false);
        }
        Ok(self.decided(WakeDue { keys: found.keys }).await && found.has_more)
    }

    /// Has the commit lane run an operation, and waits for it. Returns whether it was committed.
    async fn decided<V: crate::operation::Verb>(&self, verb: V) -> bool {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let deadline = Instant::now() + COMMIT_MAX;
        self.commits.send(Arc::new(verb), deadline, reply).is_ok()
            && timeout_at(deadline, answer)
                .await
                .is_ok_and(|answer| answer.is_ok_and(|answer| answer.is_ok()))
    }

    async fn serve_turns(&mut self, session: &ServerSession) -> Result<bool, ExchangeError> {
        let (clock, shared) = (&*self.shared.clock, &self.shared);
        let assign = fetch_turns::assign(
            session,
            &self.turns,
            clock,
            shared.test_now_ms(),
            shared.owner,
            &self.commits,
            &mut self.walk,
        );
        let mut round = session.within(assign).await?;
        if round.left_some {
            // They were locked for a moment: another process that looked then has not seen them.
            shared.tell(News { turns: true, ..News::default() });
        }
        let is_found = !round.assigned.is_empty();
        let mut kept = Vec::new();
        for (nth, parked) in std::mem::take(&mut self.turns).into_iter().enumerate() {
            let assigned = round.assigned.iter().position(|(of, _)| *of == nth);
            let turns = assigned.map(|place| round.assigned.swap_remove(place).1).unwrap_or_default();
            if turns.is_empty() && !parked.once {
                kept.push(parked);
                continue;
            }
            if let Some(lock_ms) = Some(parked.fetch.lock_timeout).filter(|_| !turns.is_empty()) {
                let lock_ms = i64::try_from(lock_ms.as_millis()).unwrap_or(i64::MAX);
                self.shared.due_at(self.shared.now_ms().saturating_add(lock_ms));
            }
            // An answer that its caller does not take returns the instances by its guards.
            drop(parked.reply.send(Ok(turns)));
        }
        self.turns = kept;
        // A round that was cut goes on in the next one.
        Ok(round.is_cut || (is_found && round.has_more && !self.turns.is_empty()))
    }

    async fn serve_work(&mut self, session: &ServerSession) -> Result<(), ExchangeError> {
        let (clock, shared) = (&*self.shared.clock, &self.shared);
        let assign =
            fetch_work::assign(session, &self.work, clock, shared.test_now_ms(), shared.owner, &self.commits);
        let (mut assigned, left_some) = session.within(assign).await?;
        if left_some {
            // They were locked for a moment: another process that looked then has not seen them.
            shared.tell(News { work: true, ..News::default() });
        }
        let mut kept = Vec::new();
        for (nth, parked) in std::mem::take(&mut self.work).into_iter().enumerate() {
            let found = assigned.iter().position(|(of, _)| *of == nth);
            let work = found.map(|place| assigned.swap_remove(place).1).unwrap_or_default();
            if work.is_empty() && !parked.once {
                kept.push(parked);
                continue;
            }
            if !work.is_empty() {
                let lease = parked
                    .fetch
                    .session
                    .as_ref()
                    .map_or(parked.fetch.lock_timeout, |session| session.lock_timeout);
                let shortest = parked.fetch.lock_timeout.min(lease);
                let lock_ms = i64::try_from(shortest.as_millis()).unwrap_or(i64::MAX);
                self.shared.due_at(self.shared.now_ms().saturating_add(lock_ms));
            }
            drop(parked.reply.send(Ok(work)));
        }
        self.work = kept;
        Ok(())
    }
}
