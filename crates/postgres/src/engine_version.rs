//! The engine version of this library, as rows say which one they need.

use semver::Version;

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

/// The largest minor version and patch that have a number of their own.
const PART_MAX: u64 = 999_999;
const MAJOR_MAX: u64 = 9_000_000;

/// A number that orders versions as they are ordered: a later version has a greater number, or the same if the versions differ
/// in their pre-release alone, or in very large parts.
pub(crate) fn order_of(version: &Version) -> i64 {
    let (minor, patch) = if version.minor >= PART_MAX {
        (PART_MAX, PART_MAX)
    } else {
        (version.minor, version.patch.min(PART_MAX))
    };
    if version.major >= MAJOR_MAX {
        return i64::MAX;
    }
    i64::try_from((version.major * (PART_MAX + 1) + minor) * (PART_MAX + 1) + patch).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_versions() {
        let texts = [
            "0.0.0-alpha",
            "0.0.0",
            "0.0.1",
            "0.0.18446744073709551615",
            "0.1.0",
            "0.999998.1000000",
            "0.999999.5",
            "0.1000000.4",
            "0.18446744073709551615.18446744073709551615",
            "1.0.0-rc.1",
            "1.0.0",
            "8999999.18446744073709551615.18446744073709551615",
            "9000000.0.0",
            "18446744073709551615.18446744073709551615.18446744073709551615",
        ];
        let versions: Vec<Version> = texts.iter().map(|text| Version::parse(text).unwrap()).collect();
        for pair in versions.windows(2) {
            assert!(pair[0] < pair[1] && order_of(&pair[0]) <= order_of(&pair[1]), "{pair:?}");
        }
        assert!(order_of(&Version::new(0, 1, 0)) < order_of(&Version::new(0, 1, 1)));
        assert!(order_of(&Version::new(1, 9, 9)) < order_of(&Version::new(2, 0, 0)));
    }
}
