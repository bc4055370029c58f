//! Which bug is caught by which proof.

use everturn_core::Bug;

/// A package whose tests are proofs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// Where it is in the workspace.
    pub folder: &'static str,
}

/// A proof as it is run here: few cases, enough to meet the bugs it is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Its number in `GUARANTEES.md`.
    pub id: &'static str,
    /// Where it is.
    pub package: Package,
    /// What the names of its tests contain.
    pub tests: &'static str,
    /// How many cases, in the unit it counts; 1 where nothing is counted.
    pub cases: u64,
}

/// A bug, and how it is caught.
#[derive(Debug, Clone, Copy)]
pub struct Planted {
    /// The bug.
    pub bug: Bug,
    /// What it breaks.
    pub breaks: &'static str,
    /// The proof that must fail.
    pub proof: Proof,
    /// What the proof says if it fails because of this bug: one of these.
    pub says: &'static [&'static str],
}

const SIMULATION: Package = Package { name: "everturn-simulation", folder: "crates/simulation" };
const CRASH: Package = Package { name: "everturn-crash-tests", folder: "tests/crash" };
const SQLITE: Package = Package { name: "everturn-sqlite", folder: "crates/sqlite" };

const STORMS: Proof =
    Proof { id: "R1", package: SIMULATION, tests: "r1_no_promise_breaks_in_any_storm", cases: 100 };
const CLOCKS: Proof = Proof {
    id: "R8",
    package: SIMULATION,
    tests: "r8_no_timer_is_early_or_lost_whatever_the_clocks_say",
    cases: 20,
};
const PROGRAMS: Proof =
    Proof { id: "R13", package: SIMULATION, tests: "r13_random_programs_end_as_predicted", cases: 60 };
const LONG_ACTIVITIES: Proof = Proof { id: "G5", package: SIMULATION, tests: "long_activities::", cases: 1 };
const POWER_CUTS: Proof =
    Proof { id: "R2", package: CRASH, tests: "r2_nothing_accepted_is_lost_by_a_power_cut", cases: 200 };
const POWER_CUTS_ON_THREADS: Proof = Proof {
    id: "R2",
    package: CRASH,
    tests: "r2_nothing_accepted_is_lost_with_the_writer_on_its_thread",
    cases: 200,
};
const IO_FAULTS: Proof =
    Proof { id: "R3", package: CRASH, tests: "r3_every_call_may_fail_once_and_for_good", cases: 300 };
const ZOMBIES: Proof = Proof {
    id: "R6",
    package: CRASH,
    tests: "r6_whoever_was_stopped_past_its_locks_cannot_commit",
    cases: 8,
};
const KILLS: Proof = Proof {
    id: "R4",
    package: CRASH,
    tests: "r4_nothing_is_lost_or_recorded_twice_when_processes_are_killed",
    cases: 300,
};
const LITTLE_ROOM: Proof =
    Proof { id: "R9", package: CRASH, tests: "r9_a_little_room_is_enough_to_go_on", cases: 6 };
const STORMS_ON_SQLITE: Proof =
    Proof { id: "R1", package: CRASH, tests: "r1_no_promise_breaks_in_any_storm_on_sqlite", cases: 60 };
const FENCING: Proof = Proof { id: "R7", package: SQLITE, tests: "in_batches::tokens::", cases: 1 };
const CLOCK_JUMPS: Proof = Proof { id: "G4", package: SQLITE, tests: "clock_jumps::", cases: 1 };
const WAKING: Proof = Proof { id: "G5", package: SQLITE, tests: "waking::", cases: 1 };
const DAMAGE: Proof = Proof { id: "R10", package: SQLITE, tests: "damage_sweep::instances", cases: 1 };

const ENDS_OTHERWISE: &str = "should have come to";
const ACTIVITY_LOST: &str = "was neither answered nor withdrawn";
const GONE: &str = "was accepted and is gone";

const fn planted(bug: Bug, breaks: &'static str, proof: Proof, says: &'static [&'static str]) -> Planted {
    Planted { bug, breaks, proof, says }
}

/// All bugs. Some are there twice: for a second proof that ought to see them.
pub const CATALOGUE: &[Planted] = &[
    planted(Bug::TimerEarly, "G6: no timer is early", CLOCKS, &["G6: timer"]),
    planted(Bug::UnreadDropped, "G1: no accepted message is lost", PROGRAMS, &["has not ended"]),
    planted(Bug::OnePollATurn, "G3: replay is live", PROGRAMS, &[ENDS_OTHERWISE]),
    planted(Bug::DroppedNotWithdrawn, "G2: a turn is committed whole", STORMS, &["has not ended"]),
    planted(Bug::StaleWarmCache, "G3: memory is what is stored", STORMS, &[ENDS_OTHERWISE]),
    planted(Bug::RenewalErrorIsLoss, "G5: an activity is not lost", LONG_ACTIVITIES, &[ACTIVITY_LOST]),
    planted(Bug::StorageErrorFails, "G5: storage errors fail nobody", STORMS, &[ENDS_OTHERWISE]),
    planted(
        Bug::WithdrawnBeforeCommit,
        "G2: nothing is told before it is durable",
        LONG_ACTIVITIES,
        &[ACTIVITY_LOST],
    ),
    planted(Bug::RunOutAcked, "G5: an activity is not lost", LONG_ACTIVITIES, &[ACTIVITY_LOST]),
    planted(Bug::NewcomersAcked, "G1: no accepted message is lost", STORMS, &["has not ended", "G1: "]),
    planted(Bug::NoTokenCheck, "G4: only the holder commits", FENCING, &["took a token it must refuse"]),
    planted(Bug::NoExpiryCheck, "G4: no ended lock commits", ZOMBIES, &["accepted late: "]),
    planted(
        Bug::RenewalResurrects,
        "G4: no ended lock comes back",
        FENCING,
        &["RenewOrchestrationItemLock took a token it must refuse"],
    ),
    planted(Bug::WallClockLocks, "G4: no jump of a clock takes a lock", CLOCK_JUMPS, &["lock expired"]),
    planted(
        Bug::WeakerSync,
        "G1: what was accepted survives a power cut",
        POWER_CUTS,
        &[GONE, "was seen to end with"],
    ),
    planted(
        Bug::SplitCommit,
        "G2: a turn is committed whole",
        POWER_CUTS,
        &["is in 0 places", "is at None, and has Some("],
    ),
    planted(Bug::AnsweredBeforeCommit, "G1: Ok is a promise", POWER_CUTS, &[GONE]),
    planted(
        Bug::LostBatchAnswered,
        "G1: Ok is a promise",
        IO_FAULTS,
        &[GONE, "Stuck(", "something was accepted by a disk that takes nothing"],
    ),
    planted(
        Bug::ActivityBeforeCommit,
        "G3: no activity runs for a turn that did not commit",
        POWER_CUTS_ON_THREADS,
        &["ran, and no committed turn scheduled it"],
    ),
    planted(Bug::OutcomeUnchecked, "G4: only the holder commits", ZOMBIES, &["accepted late: activity"]),
    planted(Bug::LostWakeUp, "G5: whoever waits is woken", WAKING, &["woke nobody"]),
    planted(Bug::NoRoomMade, "G5: work goes on after a full disk", LITTLE_ROOM, &["Stuck("]),
    planted(Bug::SplitCommit, "G2: a turn is committed whole", KILLS, &["is in 0 places"]),
    planted(Bug::NoExpiryCheck, "G4: no ended lock commits", STORMS_ON_SQLITE, &["G4: "]),
    planted(
        Bug::LostBatchAnswered,
        "G1: Ok is a promise",
        STORMS_ON_SQLITE,
        &["G1: ", "G2: ", "has not ended"],
    ),
    planted(Bug::StaleWarmCache, "G3: memory is what is stored", STORMS_ON_SQLITE, &[ENDS_OTHERWISE]),
    planted(
        Bug::DamageBlocksOthers,
        "G7: damage stops its own instance only",
        DAMAGE,
        &["names no instance"],
    ),
];
