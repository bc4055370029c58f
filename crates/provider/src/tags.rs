//! Which activities a worker takes.

use std::collections::HashSet;

use everturn_core::limits::MAX_WORKER_TAGS;

/// Which activities a worker takes, by their tag.
///
/// ```
/// use everturn_provider::TagFilter;
///
/// let filter = TagFilter::default_and(["gpu"]);
/// assert!(filter.matches(None));
/// assert!(filter.matches(Some("gpu")));
/// assert!(!filter.matches(Some("tpu")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TagFilter {
    /// Untagged activities only.
    #[default]
    DefaultOnly,
    /// Activities with one of these tags, nothing untagged.
    Tags(HashSet<String>),
    /// Untagged activities and those with one of these tags.
    DefaultAnd(HashSet<String>),
    /// Every activity.
    Any,
    /// No activity.
    None,
}

impl TagFilter {
    /// Activities with one of these tags.
    ///
    /// # Panics
    /// If there is no tag, or more than [`MAX_WORKER_TAGS`].
    pub fn tags<I, S>(tags: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self::Tags(checked("TagFilter::tags", tags))
    }

    /// Untagged activities and those with one of these tags.
    ///
    /// # Panics
    /// If there is no tag, or more than [`MAX_WORKER_TAGS`].
    pub fn default_and<I, S>(tags: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self::DefaultAnd(checked("TagFilter::default_and", tags))
    }

    /// Untagged activities only.
    pub fn default_only() -> Self {
        Self::DefaultOnly
    }

    /// Every activity.
    pub fn any() -> Self {
        Self::Any
    }

    /// No activity.
    pub fn none() -> Self {
        Self::None
    }

    /// Whether a worker with this filter takes an activity with this tag.
    pub fn matches(&self, tag: Option<&str>) -> bool {
        match (self, tag) {
            (Self::Any, _) | (Self::DefaultOnly | Self::DefaultAnd(_), None) => true,
            (Self::Tags(tags) | Self::DefaultAnd(tags), Some(tag)) => tags.contains(tag),
            (Self::None, _) | (Self::DefaultOnly, Some(_)) | (Self::Tags(_), None) => false,
        }
    }
}

fn checked<I, S>(constructor: &str, tags: I) -> HashSet<String>
where
    I: IntoIterator<Item = S>,
    S: Into<String>,
{
    let tags: HashSet<String> = tags.into_iter().map(Into::into).collect();
    assert!(!tags.is_empty(), "{constructor} requires at least one tag");
    assert!(
        tags.len() <= MAX_WORKER_TAGS,
        "{constructor} takes at most {MAX_WORKER_TAGS} tags, got {}",
        tags.len()
    );
    tags
}
