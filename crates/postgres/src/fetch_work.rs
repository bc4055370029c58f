//! `fetch_work`: the oldest activity that a worker may take.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{WorkItem, kind_of};
use everturn_provider::encoded::{length_ms, stored_ms};
use everturn_provider::store::{FetchedWork, HandlerKey, SessionPlace, WorkFetch};
use everturn_provider::{Clock, ProviderError, TagFilter};
use tokio::time::Instant;
use tokio_postgres::{Error, Row};

use crate::commit_queue::CommitQueue;
use crate::damaged_activity;
use crate::engine_version::OWN_ENGINE;
use crate::fetch_lane::FetchCommand;
use crate::locks::token;
use crate::parked_fetches::{ParkedWorkFetch, may_take};
use crate::provider::PostgresProvider;
use crate::return_unread::{UnreadGuard, UnreadWork};
use crate::session::{Parameter, ServerSession};
use crate::sessions::{LEASE, SessionLease};
use crate::text::{check_tags, check_texts};
use crate::unit_of_work::UnitOfWork;
use crate::writes::stored_tag;

/// How many activities of sessions one look reads.
const BOUND: i64 = 64;
/// How many looks a fetch takes at most at activities of sessions that it may not take.
const PAGES: usize = 64;

const READY: &str = "SELECT q.seq, NULL::text, q.instance_id, q.work_item, q.attempt_count \
     FROM {schema}.everturn_worker_queue AS q WHERE q.ready AND q.session_id IS NULL AND q.missing_handler IS NULL \
     AND q.tag = $1 AND q.needs_engine <= $2 ORDER BY q.seq LIMIT $3 FOR UPDATE SKIP LOCKED";
const TAGS: &str = "WITH RECURSIVE used (tag) AS ( \
     (SELECT q.tag FROM {schema}.everturn_worker_queue AS q \
         WHERE q.ready AND q.session_id IS NULL AND q.missing_handler IS NULL ORDER BY q.tag LIMIT 1) \
     UNION ALL SELECT n.tag FROM used AS u, LATERAL (SELECT q.tag FROM {schema}.everturn_worker_queue AS q \
         WHERE q.ready AND q.session_id IS NULL AND q.missing_handler IS NULL AND q.tag > u.tag ORDER BY q.tag LIMIT 1) AS n) \
     SELECT tag FROM used";
const MISSING_HANDLERS: &str = "WITH RECURSIVE waited (handler) AS ( \
     (SELECT q.missing_handler FROM {schema}.everturn_worker_queue AS q WHERE q.missing_handler IS NOT NULL \
         ORDER BY q.missing_handler LIMIT 1) \
     UNION ALL SELECT n.missing_handler FROM waited AS w, LATERAL (SELECT q.missing_handler \
         FROM {schema}.everturn_worker_queue AS q WHERE q.missing_handler IS NOT NULL AND q.missing_handler > w.handler \
         ORDER BY q.missing_handler LIMIT 1) AS n) SELECT handler FROM waited";
const READY_FOR_HANDLER: &str = "SELECT q.seq, NULL::text, q.instance_id, q.work_item, q.attempt_count \
     FROM {schema}.everturn_worker_queue AS q WHERE q.missing_handler = $1 AND q.needs_engine <= $2 \
     AND (q.tag = ANY($3) OR $4) AND q.session_id IS NULL ORDER BY q.seq LIMIT $5 FOR UPDATE SKIP LOCKED";
const READY_OF_SESSIONS: &str = "SELECT q.seq, q.session_id, q.instance_id, q.work_item, q.attempt_count, q.missing_handler, \
     q.tag, s.owner_id FROM {schema}.everturn_worker_queue AS q LEFT JOIN {schema}.everturn_sessions AS s \
     ON s.session_id = q.session_id AND s.lease_until_ms > {schema}.everturn_now_ms($1) \
     WHERE q.ready AND q.session_id IS NOT NULL AND q.seq > $2 AND q.needs_engine <= $3 ORDER BY q.seq LIMIT $4 \
     FOR UPDATE OF q SKIP LOCKED";
const LOCK: &str = "UPDATE {schema}.everturn_worker_queue AS q SET lock_token = n.token, \
     locked_until_ms = {schema}.everturn_now_ms($1) + n.lock_ms, lock_ms = n.lock_ms, lock_owner = $5, ready = false, \
     visible_at_ms = 0, missing_handler = NULL, attempt_count = least(q.attempt_count, 4294967294) + 1, \
     check_at_ms = {schema}.everturn_now_ms($1) + n.lock_ms \
     FROM unnest($2::bigint[], $3::text[], $4::bigint[]) AS n (seq, token, lock_ms) WHERE q.seq = n.seq";

/// All statements of a round.
pub(crate) const STATEMENTS: &[&str] =
    &[READY, TAGS, MISSING_HANDLERS, READY_FOR_HANDLER, READY_OF_SESSIONS, LOCK, LEASE];

/// What the worker of an ended activity takes in the same commit.
#[derive(Debug, Clone)]
pub(crate) struct WorkLock {
    pub(crate) random: u128,
    pub(crate) lock_timeout: Duration,
}

/// An activity that was locked for a worker.
pub(crate) struct AssignedWork {
    pub(crate) token: String,
    /// The instance that its row names; `None` if its row was inserted with it.
    instance_id: Option<String>,
    work_item: String,
    attempt_count: u32,
    /// A moment before the lock was taken, by the monotonic clock of this process.
    locked_at: Duration,
    pub(crate) lease: Option<SessionLease>,
    place: Option<SessionPlace>,
}

impl AssignedWork {
    /// An activity whose row was locked before.
    pub(crate) fn locked(
        token: String,
        instance_id: String,
        work_item: String,
        attempt_count: u32,
        locked_at: Duration,
    ) -> Self {
        let instance_id = Some(instance_id);
        Self { token, instance_id, work_item, attempt_count, locked_at, lease: None, place: None }
    }
}

/// An activity for a caller. If it is dropped unread, the activity returns to the queue.
pub(crate) struct WorkAnswer {
    work: AssignedWork,
    guard: UnreadGuard,
}

impl WorkAnswer {
    pub(crate) fn new(work: AssignedWork, commits: &Arc<CommitQueue>) -> Self {
        let unread = UnreadWork::Activity { token: work.token.clone(), lease: work.lease.clone() };
        Self { work, guard: UnreadGuard::new(Arc::clone(commits), unread) }
    }
}

/// A decoded activity, which its caller does not have yet.
pub(crate) struct ReadWork {
    fetched: FetchedWork,
    locked_at: Duration,
    lock_timeout: Duration,
    guard: UnreadGuard,
}

impl ReadWork {
    /// The caller has it now.
    pub(crate) fn handed_out(mut self, clock: &dyn Clock) -> FetchedWork {
        self.guard.disarm();
        let spent = clock.monotonic().saturating_sub(self.locked_at);
        self.fetched.lock_left = self.lock_timeout.saturating_sub(spent);
        self.fetched
    }
}

impl UnitOfWork {
    /// Locks the oldest ready activity for the worker of a step.
    pub(crate) fn assign_ready(&mut self, lock: &WorkLock) -> Option<AssignedWork> {
        let row = self.next_ready()?;
        let token = token(row.seq, lock.random);
        let lock_ms = stored_ms(length_ms(lock.lock_timeout));
        let until_ms = self.now_ms.saturating_add(lock_ms);
        if row.is_new {
            self.writes.activities.lock(row.seq, &token, until_ms, lock_ms);
        } else {
            let (seqs, tokens, untils, lengths) = &mut self.writes.lock_activities;
            seqs.push(row.seq);
            tokens.push(token.clone());
            untils.push(until_ms);
            lengths.push(lock_ms);
        }
        self.effects.due_at(until_ms);
        Some(AssignedWork {
            token,
            instance_id: None,
            work_item: row.work_item,
            attempt_count: u32::try_from(row.attempt_count.saturating_add(1)).unwrap_or(u32::MAX),
            locked_at: self.began,
            lease: None,
            place: None,
        })
    }
}

/// A row that a fetch may take.
struct ReadyWorkRow {
    seq: i64,
    session_id: Option<String>,
    instance_id: String,
    work_item: String,
    attempt_count: i64,
}

impl ReadyWorkRow {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            seq: row.try_get(0)?,
            session_id: row.try_get(1)?,
            instance_id: row.try_get(2)?,
            work_item: row.try_get(3)?,
            attempt_count: row.try_get(4)?,
        })
    }
}

/// Locks activities for these fetches, in a transaction of its own. Returns for each fetch that gets some its place among the
/// parked ones, and what it gets; and whether some were locked for the transaction that no fetch took although it could have.
pub(crate) async fn assign(
    session: &ServerSession,
    fetches: &[ParkedWorkFetch],
    clock: &dyn Clock,
    test_now_ms: Option<i64>,
    owner: i64,
    commits: &Arc<CommitQueue>,
) -> Result<(Vec<(usize, Vec<WorkAnswer>)>, bool), Error> {
    let began = clock.monotonic();
    session.run("BEGIN").await?;
    let is_open = |parked: &&ParkedWorkFetch| !parked.reply.is_closed();
    let wanted: usize = fetches.iter().filter(is_open).map(|parked| parked.fetch.work_max).sum();
    let mut round = WorkRound {
        session,
        test_now_ms,
        owner,
        wanted: i64::try_from(wanted).unwrap_or(i64::MAX),
        taken: BTreeSet::new(),
        replaced: BTreeSet::new(),
        used_tags: None,
        missing_handlers: None,
        ready: HashMap::new(),
    };
    let mut assigned = Vec::new();
    let mut locks: (Vec<i64>, Vec<String>, Vec<i64>) = Default::default();
    for (nth, parked) in fetches.iter().enumerate() {
        if parked.reply.is_closed() {
            continue;
        }
        let lock_ms = stored_ms(length_ms(parked.fetch.lock_timeout));
        let mut work = Vec::new();
        for (row, lease, place) in round.take(&parked.fetch).await? {
            let token = token(row.seq, clock.random_u128());
            locks.0.push(row.seq);
            locks.1.push(token.clone());
            locks.2.push(lock_ms);
            let assigned_work = AssignedWork {
                token,
                instance_id: Some(row.instance_id.clone()),
                work_item: row.work_item.clone(),
                attempt_count: u32::try_from(row.attempt_count.saturating_add(1)).unwrap_or(u32::MAX),
                locked_at: began,
                lease,
                place,
            };
            // From here on: if the answer to the commit is lost, the activity returns.
            work.push(WorkAnswer::new(assigned_work, commits));
        }
        if !work.is_empty() {
            assigned.push((nth, work));
        }
    }
    let parameters: [Parameter<'_>; 5] = [&test_now_ms, &locks.0, &locks.1, &locks.2, &owner];
    if locks.0.is_empty() {
        session.run("COMMIT").await?;
        // Nothing has changed: other processes would find what they have found before.
        return Ok((assigned, false));
    }
    tokio::try_join!(biased; session.execute(LOCK, &parameters), session.run("COMMIT"))?;
    Ok((assigned, round.left_some()))
}

/// One round of assignments.
struct WorkRound<'a> {
    session: &'a ServerSession,
    test_now_ms: Option<i64>,
    owner: i64,
    /// How many activities all fetches together may take.
    wanted: i64,
    taken: BTreeSet<i64>,
    /// Locked for a fetch that had older ones to take.
    replaced: BTreeSet<i64>,
    /// What was read for one fetch answers the same question of the others.
    used_tags: Option<Vec<String>>,
    missing_handlers: Option<Vec<String>>,
    ready: HashMap<ReadyQuestion, Vec<Arc<ReadyWorkRow>>>,
}

/// Which ready activities are asked for, among those that are bound to no session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ReadyQuestion {
    /// Those with this tag.
    Tag(String),
    /// Those that wait for this handler, with one of these tags or with any.
    Handler { handler: String, tags: Vec<String>, takes_all: bool },
}

type TakenRow = (Arc<ReadyWorkRow>, Option<SessionLease>, Option<SessionPlace>);

impl WorkRound<'_> {
    /// What a fetch gets, the oldest first.
    async fn take(&mut self, fetch: &WorkFetch) -> Result<Vec<TakenRow>, Error> {
        let mut plain = self.unbound(fetch).await?;
        plain.sort_by_key(|row| row.seq);
        plain.truncate(fetch.work_max);
        let mut rows: Vec<TakenRow> = plain.into_iter().map(|row| (row, None, None)).collect();
        if fetch.session.is_some() {
            self.add_bound(fetch, &mut rows).await?;
        }
        self.taken.extend(rows.iter().map(|(row, ..)| row.seq));
        Ok(rows)
    }

    /// Ready activities that the fetch may take and that are bound to no session, the oldest of each question.
    async fn unbound(&mut self, fetch: &WorkFetch) -> Result<Vec<Arc<ReadyWorkRow>>, Error> {
        let takes_all = fetch.tags == TagFilter::Any;
        let mut tags: Vec<String> = match &fetch.tags {
            TagFilter::None => return Ok(Vec::new()),
            TagFilter::DefaultOnly => vec![stored_tag(None)],
            TagFilter::Tags(tags) => tags.iter().map(|tag| stored_tag(Some(tag))).collect(),
            TagFilter::DefaultAnd(tags) => {
                tags.iter().map(|tag| stored_tag(Some(tag))).chain([stored_tag(None)]).collect()
            }
            TagFilter::Any => self.used_tags().await?,
        };
        tags.sort_unstable();
        let mut found = Vec::new();
        for tag in &tags {
            found.extend(self.ready(ReadyQuestion::Tag(tag.clone()), fetch.work_max).await?);
        }
        for handler in self.missing_handlers().await? {
            if may_take(fetch.handlers.as_ref(), Some(&HandlerKey::activity(&handler))) {
                let tags = if takes_all { Vec::new() } else { tags.clone() };
                let question = ReadyQuestion::Handler { handler, tags, takes_all };
                found.extend(self.ready(question, fetch.work_max).await?);
            }
        }
        Ok(found)
    }

    /// The oldest rows that answer a question and that no fetch has got yet.
    async fn ready(
        &mut self,
        question: ReadyQuestion,
        work_max: usize,
    ) -> Result<Vec<Arc<ReadyWorkRow>>, Error> {
        if !self.ready.contains_key(&question) {
            let rows = match &question {
                ReadyQuestion::Tag(tag) => {
                    self.session.query(READY, &[tag, &OWN_ENGINE, &self.wanted]).await?
                }
                ReadyQuestion::Handler { handler, tags, takes_all } => {
                    let parameters: [Parameter<'_>; 5] =
                        [handler, &OWN_ENGINE, tags, takes_all, &self.wanted];
                    self.session.query(READY_FOR_HANDLER, &parameters).await?
                }
            };
            let row = |row: &Row| ReadyWorkRow::of(row).map(Arc::new);
            let rows = rows.iter().map(row).collect::<Result<Vec<_>, _>>()?;
            self.ready.insert(question.clone(), rows);
        }
        let Some(rows) = self.ready.get_mut(&question) else { return Ok(Vec::new()) };
        let taken = &self.taken;
        rows.retain(|row| !taken.contains(&row.seq));
        Ok(rows.iter().take(work_max).cloned().collect())
    }

    /// Whether activities were locked that a fetch could have taken, but did not.
    fn left_some(&self) -> bool {
        let mut left = self.ready.values().flatten().map(|row| &row.seq).chain(&self.replaced);
        left.any(|seq| !self.taken.contains(seq))
    }

    /// The tags of ready activities.
    async fn used_tags(&mut self) -> Result<Vec<String>, Error> {
        if self.used_tags.is_none() {
            self.used_tags = Some(texts(&self.session.query(TAGS, &[]).await?)?);
        }
        Ok(self.used_tags.clone().unwrap_or_default())
    }

    /// The handlers that activities wait for.
    async fn missing_handlers(&mut self) -> Result<Vec<String>, Error> {
        if self.missing_handlers.is_none() {
            self.missing_handlers = Some(texts(&self.session.query(MISSING_HANDLERS, &[]).await?)?);
        }
        Ok(self.missing_handlers.clone().unwrap_or_default())
    }

    /// Adds activities of sessions that the fetch may take, those that are older than what it has.
    async fn add_bound(&mut self, fetch: &WorkFetch, rows: &mut Vec<TakenRow>) -> Result<(), Error> {
        let Some(config) = &fetch.session else { return Ok(()) };
        let mut after = i64::MIN;
        for _ in 0..PAGES {
            let page = self
                .session
                .query(READY_OF_SESSIONS, &[&self.test_now_ms, &after, &OWN_ENGINE, &BOUND])
                .await?;
            let is_last = i64::try_from(page.len()).is_ok_and(|found| found < BOUND);
            for row in &page {
                let activity = ReadyWorkRow::of(row)?;
                after = activity.seq;
                let is_full = rows.len() >= fetch.work_max;
                let youngest = rows.iter().map(|(row, ..)| row.seq).max();
                if is_full && youngest.is_none_or(|youngest| youngest < activity.seq) {
                    return Ok(());
                }
                let (missing, tag, owner): (Option<String>, String, Option<String>) =
                    (row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
                let missing = missing.map(HandlerKey::activity);
                let has_handler = may_take(fetch.handlers.as_ref(), missing.as_ref());
                let is_open = owner.as_ref().is_none_or(|owner| *owner == config.owner_id);
                if !has_handler
                    || !is_open
                    || self.taken.contains(&activity.seq)
                    || !fetch.tags.matches(tag.strip_prefix('t'))
                {
                    continue;
                }
                let Some(session_id) = activity.session_id.clone() else { continue };
                let place = match &fetch.session_places {
                    None => None,
                    Some(places) if !places.room().admits(&session_id) => continue,
                    Some(places) => match places.reserve(&session_id) {
                        Some(place) => Some(place),
                        // The last place was taken after the store asked for room.
                        None => return Ok(()),
                    },
                };
                let Some(lease) =
                    self.lease(&session_id, config.owner_id.as_str(), config.lock_timeout, &owner).await?
                else {
                    continue;
                };
                if is_full {
                    // The youngest of the others stays for another fetch.
                    if let Some(last) = rows.iter().position(|(row, ..)| Some(row.seq) == youngest) {
                        self.replaced.insert(rows.remove(last).0.seq);
                    }
                }
                rows.push((Arc::new(activity), Some(lease), place));
                rows.sort_by_key(|(row, ..)| row.seq);
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Leases a session that is free or already the owner's; `None` if another owner was faster.
    async fn lease(
        &self,
        session_id: &str,
        owner_id: &str,
        length: Duration,
        leased_by: &Option<String>,
    ) -> Result<Option<SessionLease>, Error> {
        let lease_ms = stored_ms(length_ms(length));
        let now = self.session.query_opt(crate::shared::NOW, &[&self.test_now_ms]).await?;
        let now_ms: i64 = now.map_or(Ok(0), |row| row.try_get(0))?;
        let parameters: [Parameter<'_>; 5] = [&session_id, &owner_id, &now_ms, &lease_ms, &self.owner];
        let is_leased = self.session.query_opt(LEASE, &parameters).await?.is_some();
        Ok(is_leased.then(|| SessionLease {
            session_id: session_id.to_owned(),
            owner_id: owner_id.to_owned(),
            is_new: leased_by.is_none(),
        }))
    }
}

fn texts(rows: &[Row]) -> Result<Vec<String>, Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Fetches activities for a caller.
pub(crate) async fn fetch(
    provider: &PostgresProvider,
    fetch: &WorkFetch,
) -> Result<Vec<FetchedWork>, ProviderError> {
    let read = read(provider, fetch).await?;
    Ok(read.into_iter().map(|work| work.handed_out(provider.clock())).collect())
}

/// Parks a fetch in the lane, then decodes what it was assigned.
pub(crate) async fn read(
    provider: &PostgresProvider,
    fetch: &WorkFetch,
) -> Result<Vec<ReadWork>, ProviderError> {
    check_tags("fetch_work", &fetch.tags)?;
    let owner_id = fetch.session.as_ref().map(|session| session.owner_id.as_str());
    check_texts("fetch_work", [("the id of an owner", owner_id)])?;
    if fetch.tags == TagFilter::None {
        tokio::time::sleep(fetch.poll_timeout).await;
        return Ok(Vec::new());
    }
    let began = Instant::now();
    let shared = Arc::new(fetch.clone());
    loop {
        let left = fetch.poll_timeout.saturating_sub(began.elapsed());
        let once = left.is_zero();
        let answers = provider
            .park("fetch_work", left, |reply| {
                FetchCommand::Work(ParkedWorkFetch { fetch: Arc::clone(&shared), once, reply })
            })
            .await?;
        if answers.is_empty() {
            return Ok(Vec::new());
        }
        let mut fetched = Vec::new();
        for answer in answers {
            fetched.extend(decode(provider, answer, fetch.lock_timeout).await?);
        }
        if !fetched.is_empty() {
            return Ok(fetched);
        }
    }
}

/// Decodes an assigned activity. A damaged one is removed.
pub(crate) async fn decode(
    provider: &PostgresProvider,
    answer: WorkAnswer,
    lock_timeout: Duration,
) -> Result<Option<ReadWork>, ProviderError> {
    let WorkAnswer { work, guard } = answer;
    let reason = match serde_json::from_str(&work.work_item) {
        Ok(item @ WorkItem::ActivityExecute { .. }) => {
            let is_own = work.instance_id.as_deref().is_none_or(|instance| instance == item.instance());
            if is_own {
                // How much of the lock is left is known when the answer is given.
                let mut fetched = FetchedWork::new(item, work.token, Duration::ZERO, work.attempt_count);
                fetched.session_place = work.place;
                let locked_at = work.locked_at;
                return Ok(Some(ReadWork { fetched, locked_at, lock_timeout, guard }));
            }
            format!("it says that it is for {}", item.instance())
        }
        Ok(other) => format!("it holds a {}", kind_of(&other)),
        Err(error) => error.to_string(),
    };
    damaged_activity::remove_fetched(provider, work.token, reason).await?;
    Ok(None)
}
