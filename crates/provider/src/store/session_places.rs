//! How many sessions a runtime serves at the same time.

use std::any::Any;
use std::fmt;

/// The places that a runtime has for sessions. The store asks when it assigns an activity, so that no session is claimed
/// that the runtime cannot serve now.
///
/// Never blocks: the store may call it on the thread that does all its writes.
pub trait SessionPlaces: Send + Sync {
    /// The sessions that there is room for now.
    fn room(&self) -> SessionRoom;

    /// Takes a place for one activity of this session; `None` if there is no room for it.
    fn reserve(&self, session_id: &str) -> Option<SessionPlace>;
}

/// The sessions that there is room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRoom {
    /// Any session.
    Any,
    /// Only the sessions that the runtime serves already.
    Only(Vec<String>),
}

impl SessionRoom {
    /// Whether there is room for this session.
    pub fn admits(&self, session_id: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(served) => served.iter().any(|served| served == session_id),
        }
    }
}

/// A place for one activity of a session, released when dropped.
pub struct SessionPlace(
    #[expect(dead_code, reason = "dropping it releases the place")] Box<dyn Any + Send + Sync>,
);

impl SessionPlace {
    /// Wraps what the runtime keeps; its `Drop` must release the place.
    pub fn new(place: impl Any + Send + Sync) -> Self {
        Self(Box::new(place))
    }
}

impl fmt::Debug for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionPlace")
    }
}
