//! `assert_eq!` that says which value was looked at and what it should have been.

use std::fmt::Debug;

/// Longer values get a line of their own.
const SHORT: usize = 80;

/// Like [`std::assert_eq!`], but a failure says what was expected of which expression: first the value that is looked at,
/// then the value that it should have.
///
/// With `#[macro_use] extern crate everturn_proof;` it takes the place of the other one in a whole crate.
///
/// ```should_panic
/// let locked = ["order-1"];
/// // `locked.len()` should be 0, it is 1: the worker is gone
/// everturn_proof::assert_eq!(locked.len(), 0, "the worker is gone");
/// ```
#[macro_export]
macro_rules! assert_eq {
    ($actual:expr, $expected:expr $(,)?) => {
        $crate::assert_eq!($actual, $expected, "")
    };
    ($actual:expr, $expected:expr, $($why:tt)+) => {
        match (&$actual, &$expected) {
            (actual, expected) => {
                if !(*actual == *expected) {
                    let why = ::std::format!($($why)+);
                    ::std::panic!("{}", $crate::difference(::std::stringify!($actual), actual, expected, &why));
                }
            }
        }
    };
}

/// The message of a failed [`assert_eq!`](crate::assert_eq!).
#[doc(hidden)]
pub fn difference(
    what: &str,
    actual: &(impl Debug + ?Sized),
    expected: &(impl Debug + ?Sized),
    why: &str,
) -> String {
    let (actual, expected) = (format!("{actual:?}"), format!("{expected:?}"));
    let gap = if actual.len() + expected.len() > SHORT { "\n    " } else { " " };
    let reason = if why.is_empty() { String::new() } else { format!(": {why}") };
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("`{what}` should be{gap}{expected}, it is{gap}{actual}{reason}")
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_failure_says_what_was_expected_of_what() {
        let message = difference("store\n    .locked()", &0, &1, "the holder is alive");
        std::assert_eq!(message, "`store .locked()` should be 1, it is 0: the holder is alive");
    }

    #[test]
    fn values_that_are_equal_pass() {
        crate::assert_eq!("a".to_owned(), "a");
        crate::assert_eq!(vec![1], [1], "a reason with {}", 1);
    }

    #[test]
    #[should_panic(expected = "`1 + 1` should be 3, it is 2: sums of 2")]
    fn values_that_differ_panic() {
        crate::assert_eq!(1 + 1, 3, "sums of {}", 2);
    }
}
