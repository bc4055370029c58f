//! Mutants of the last sample that no test noticed: why none can or should, or which test has been added since.

/// The name of a mutant without line and column, and the reason.
const ACCEPTED: &[(&str, &str)] = &[
    (
        "crates/core/src/turn/convert_messages.rs: replace + with * in Execution::convert_messages",
        "Room that is reserved for events: too little of it costs an allocation and changes nothing else.",
    ),
    (
        "crates/provider/src/error.rs: replace <impl fmt::Debug for ProviderError>::fmt -> fmt::Result with Ok(Default::default())",
        "Noticed since by the_debug_form_shows_the_fields_that_programs_compare.",
    ),
    (
        "crates/provider/src/memory/fetch_work.rs: replace < with <= in Tables::fetch_work",
        "A lock of exactly the length between two looks: parked fetches look again at that moment in any case.",
    ),
    (
        "crates/sqlite/src/commit_turn.rs: replace match guard self.names().is_none() with false in CommitTurn::supersede",
        "An instance without a name has no current execution: no read uses these counts, and they are written again when it \
         gets one.",
    ),
    (
        "crates/sqlite/src/ready_work.rs: replace < with == in ReadySessions::oldest_of",
        "Noticed since by of_the_sessions_that_are_served_the_oldest_activity_comes_first_whatever_their_order.",
    ),
    (
        "crates/everturn/src/runtime/dispatcher/run_step.rs: replace + with * in StepLeader<'_>::take_and_commit",
        "Noticed since by the_end_of_an_execution_says_how_many_events_it_has_also_if_a_step_ended_it.",
    ),
    (
        "crates/sqlite/src/fetch_turns.rs: replace match guard is_damaged(&error) with true in complete",
        "Noticed since by a_history_that_cannot_be_read_is_no_damage_of_its_instance; and by R3 with unreadable pages.",
    ),
    (
        "crates/sqlite/src/writer/assignment.rs: replace match guard is_unreadable(&error) with false in Writer::assign_activities",
        "The operation that follows makes the same read, fails in the same way, and the batch is lost for the same reason.",
    ),
    (
        "crates/provider/src/memory/commit_step.rs: replace Tables::row_locked_with -> Option<u64> with None",
        "Noticed since by an_activity_that_a_step_locked_runs_although_the_answer_was_lost.",
    ),
];

/// The reason for this mutant, if there is one.
pub(crate) fn reason(mutant: &str) -> Option<&'static str> {
    ACCEPTED.iter().find(|(name, _)| *name == mutant).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ACCEPTED, reason};
    use crate::mutants::without_position;
    use crate::record;

    #[test]
    fn every_survivor_of_the_last_sample_has_a_reason() {
        let runs = record::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))).unwrap();
        for mutant in record::last_mutants(&runs).map_or(&[][..], |(_, test)| &test.survivors) {
            assert!(reason(&without_position(mutant)).is_some(), "{mutant} needs a test or a reason");
        }
    }

    #[test]
    fn an_accepted_mutant_names_a_file_and_a_reason() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for (mutant, reason) in ACCEPTED {
            let file = mutant.split(": ").next().unwrap();
            assert!(root.join(file).is_file(), "{mutant}: the file is gone");
            assert!(reason.len() > 20, "{mutant}: {reason:?} is no reason");
        }
    }
}
