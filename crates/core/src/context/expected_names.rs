//! Names that an orchestration uses.

use crate::names::check_name;

/// Panics if a name is empty, too long or contains a control character: no runtime can have registered it, and no client
/// can send to it, so the call would wait for ever.
#[track_caller]
pub(super) fn expect_name(what: &str, name: &str) {
    if let Err(error) = check_name(what, name) {
        panic!("{error}");
    }
}
