//! A simulated world for Everturn.
//!
//! Three nodes, each a real runtime with clients, share one [`Store`]: one in memory, or any other. Time is tokio's paused clock, everything
//! runs on one thread, and every choice is drawn from one seed: what the programs do, how long things take, which calls
//! fail before or after they took effect, which node dies when, how far off the clocks are. So a seed that fails once
//! fails every time.
//!
//! A [`Plan`] is what a seed stands for; [`run`] lives through it and reports what broke; [`prove`] does it for a seed.
#![forbid(unsafe_code)]

mod activities;
mod checks;
mod counts;
mod deliveries;
mod faulty_store;
mod generate;
mod interpreter;
mod life;
mod memory_store;
mod model;
mod names;
mod node;
mod observer;
mod outside;
mod panics;
mod plan;
mod power;
mod program;
mod proof;
mod random;
mod retelling;
mod sabotage;
mod scene;
mod sessions;
mod shrink;
mod sim_clock;
mod store;
mod stormy_store;
mod story;
mod weather;
mod world;

pub use counts::Counts;
pub use faulty_store::{BatchFate, BatchFates, FaultyStore, LostBatch, NoLoss, Unanswered};
pub use panics::hearing;
pub use plan::{NodePlan, Plan, Root, Theme};
pub use program::{Action, Ending, Program, Racer, Step};
pub use proof::{prove, prove_on};
pub use random::SeededRandom;
pub use retelling::{Retelling, retell};
pub use sabotage::{SABOTAGES, Sabotage};
pub use shrink::{shrink, shrink_on};
pub use sim_clock::SimClock;
pub use store::{Founder, Opened, Standing, Store};
pub use weather::{DISK_FAULTS, FAULTS, Fault, Weather};
pub use world::{Outcome, run, run_on, run_traced, run_traced_on};
