//! Versions of the engine and the ranges a runtime can replay.

use semver::Version;

/// The workspace's version as text: stamped on every event.
pub(crate) const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of this build; the one every event carries.
pub fn current_build_version() -> Version {
    // The build system guarantees that a package version is semantic; zero is what "unknown" means everywhere else.
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

    /// Everything up to this build.
    pub fn default_for_current_build() -> Self {
        Self::new(Version::new(0, 0, 0), current_build_version())
    }
}
