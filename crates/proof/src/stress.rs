//! Stress settings: the same tests under settings that no application would choose.

/// Whether the tests run under stress settings: nothing stays warm, one operation a commit, locks of 200 ms. Code that sets
/// something up for a test asks.
pub fn is_stress_run() -> bool {
    std::env::var_os("EVERTURN_STRESS").is_some_and(|value| value == "1")
}

/// The size of a large test: `count`, or a tenth of it under stress settings, where each item costs more.
pub fn many(count: usize) -> usize {
    if is_stress_run() { count.div_ceil(10) } else { count }
}
