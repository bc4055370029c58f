//! A simulated world for Everturn.
//!
//! Three nodes, each a real runtime, and clients share one [`WorldStore`]: in memory, or any other. Time is tokio's paused
//! clock, everything runs on one thread, and every choice is drawn from one seed: what the programs do, how long things
//! take, which calls fail before or after they took effect, which node crashes when, how far off the clocks are. So a seed
//! that fails once fails every time.
//!
//! A [`Plan`] is drawn from a seed; [`run`] runs it and reports violations; [`prove`] does it for a seed of a proof.
//! [`FaultyStore`] can be used without a world.
#![forbid(unsafe_code)]

mod activities;
mod checks;
mod clients;
mod combinators;
mod counts;
mod deliveries;
mod failing_verb;
mod fault_plan;
mod faulty_store;
mod generate;
mod interpreter;
mod memory_world;
mod model;
mod names;
mod node;
mod panics;
mod plan;
mod power;
mod process;
mod process_faults;
mod program;
mod proof;
mod random;
mod recorded_store;
mod recorder;
mod replay_check;
mod scenario;
mod sessions;
mod shrink;
mod sim_clock;
mod store_bugs;
mod turn_trace;
mod world;
mod world_store;

pub use counts::WorldCounts;
pub use fault_plan::{DISK_FAULTS, FAULTS, Fault, FaultPlan};
pub use faulty_store::{
    BatchFate, BatchFates, CallFaults, CallKind, FaultyStore, LostBatch, NoLoss, Unanswered,
};
pub use panics::collecting_panics;
pub use plan::{NodePlan, Plan, Root, Theme};
pub use process::Process;
pub use program::{Combinator, Ending, Program, ProgramAction, Racer, Step};
pub use proof::{prove, prove_on};
pub use random::SeededRandom;
pub use replay_check::{ReplayCheck, check_replay};
pub use shrink::{shrink, shrink_on};
pub use sim_clock::SimClock;
pub use store_bugs::{STORE_BUGS, StoreBug};
pub use world::{Outcome, run, run_on, run_traced, run_traced_on};
pub use world_store::{CreateStore, LockState, OpenedStore, WorldStore};
