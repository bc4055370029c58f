//! Behaviour that is easy to get wrong, each with a test named after it.

mod cancellation;
mod messages;
mod resilience;
mod sizes;
