//! The version of the engine, and ranges of versions that a runtime can replay.

use semver::Version;

/// The version of this build as text; every event carries it.
pub(crate) const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of this build; every event carries it.
pub fn current_build_version() -> Version {
    // Cargo guarantees that a package version is semantic. Zero means "unknown" everywhere else.
    Version::parse(BUILD_VERSION).unwrap_or(Version::new(0, 0, 0))
}

/// A range of versions, both ends included.
///
/// ```
/// use everturn_core::SemverRange;
/// use semver::Version;
///
/// let range = SemverRange::new(Version::new(1, 0, 0), Version::new(2, 0, 0));
/// assert!(range.contains(&Version::new(2, 0, 0)));
/// assert!(!range.contains(&Version::new(2, 0, 1)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemverRange {
    /// Lowest version of the range.
    pub min: Version,
    /// Highest version of the range.
    pub max: Version,
}

impl SemverRange {
    /// The range from `min` to `max`.
    pub fn new(min: Version, max: Version) -> Self {
        Self { min, max }
    }

    /// Whether `version` lies in the range.
    pub fn contains(&self, version: &Version) -> bool {
        *version >= self.min && *version <= self.max
    }

    /// Every version up to this build.
    pub fn default_for_current_build() -> Self {
        Self::new(Version::new(0, 0, 0), current_build_version())
    }
}
