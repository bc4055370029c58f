//! Sequences that once showed a difference between two providers, as the model test shrank them.

use super::op::Op;

/// All of them, each named for what was wrong.
pub(super) fn all() -> Vec<(&'static str, Vec<Op>)> {
    Vec::new()
}
