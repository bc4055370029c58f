//! The proofs of `GUARANTEES.md` that need no disk and no other process.

use everturn_simulation::Theme;

use crate::seeds::hold;

/// Three nodes, everything goes wrong.
#[test]
fn r1_no_promise_breaks_in_any_storm() {
    hold(Theme::Storms, 500);
}

/// Clocks a day apart, set back and forth.
#[test]
fn r8_no_timer_is_early_or_lost_whatever_the_clocks_say() {
    hold(Theme::Clocks, 200);
}

/// Random programs, killed again and again, come to what the model says.
#[test]
fn r13_random_programs_end_as_predicted() {
    hold(Theme::Programs, 300);
}
