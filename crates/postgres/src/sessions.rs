//! Sessions: which worker owns which, and until when.

/// Extends the leases of owners.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRenewal {
    pub(crate) owner_ids: Vec<String>,
    pub(crate) lease_ms: i64,
    /// When the caller called: a lease that had ended then is not extended.
    pub(crate) called_ms: i64,
    /// A session without activity since then is not extended.
    pub(crate) active_since_ms: i64,
}

pub(crate) const RENEW_LEASES: &str = "UPDATE {schema}.everturn_sessions SET \
     lease_until_ms = {schema}.everturn_now_ms($5) + $2, lease_ms = $2, lock_owner = $6 \
     WHERE owner_id = ANY($1) AND lease_until_ms > $3 AND active_at_ms > $4";
/// Takes a session that is free or already the owner's. No row if another owner was faster.
pub(crate) const LEASE: &str = "INSERT INTO {schema}.everturn_sessions AS s \
     (session_id, owner_id, lease_until_ms, lease_ms, active_at_ms, lock_owner) VALUES ($1, $2, $3::bigint + $4::bigint, $4, $3, $5) \
     ON CONFLICT (session_id) DO UPDATE SET owner_id = excluded.owner_id, lease_until_ms = excluded.lease_until_ms, \
     lease_ms = excluded.lease_ms, active_at_ms = excluded.active_at_ms, lock_owner = excluded.lock_owner \
     WHERE s.owner_id = excluded.owner_id OR s.lease_until_ms <= $3 RETURNING session_id";
pub(crate) const DELETE_EXPIRED: &str = "DELETE FROM {schema}.everturn_sessions AS s \
     WHERE s.lease_until_ms <= {schema}.everturn_now_ms($1) \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_worker_queue AS q WHERE q.session_id = s.session_id)";
/// Undoes a lease whose activity was returned unread, unless the owner works on another activity of the session.
pub(crate) const UNDO_LEASE: &str = "DELETE FROM {schema}.everturn_sessions AS s WHERE s.session_id = $1 AND s.owner_id = $2 \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_worker_queue AS q WHERE q.session_id = s.session_id \
         AND q.lock_token IS NOT NULL AND NOT q.ready)";

/// A session that a fetch leased for its owner.
#[derive(Debug, Clone)]
pub(crate) struct SessionLease {
    pub(crate) session_id: String,
    pub(crate) owner_id: String,
    /// Whether the owner did not have the session before.
    pub(crate) is_new: bool,
}
