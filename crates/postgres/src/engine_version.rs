//! The engine version of this library, as rows say which one they need.

/// Rows that need a later version are passed over: this process could not read them.
pub(crate) const OWN_ENGINE: i64 = part(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
    + part(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
    + part(env!("CARGO_PKG_VERSION_PATCH"));

const fn part(number: &str) -> i64 {
    match i64::from_str_radix(number, 10) {
        Ok(number) => number,
        Err(_) => panic!("the version of a package has three numbers"),
    }
}
