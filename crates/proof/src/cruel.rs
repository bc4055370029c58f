//! The same tests under settings that nobody would choose.

/// Whether the tests run under cruel settings: nothing stays warm, one operation a commit, locks of 200 ms. Whoever
/// sets something up for a test asks.
pub fn is_cruel() -> bool {
    std::env::var_os("EVERTURN_CRUEL").is_some_and(|value| value == "1")
}

/// So many of something large; a tenth of it under cruel settings, where each costs more.
pub fn many(count: usize) -> usize {
    if is_cruel() { count.div_ceil(10) } else { count }
}
