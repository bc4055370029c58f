//! Collects panics of a thread, also those that the code under test catches.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// What the panics of this thread said and where, while a world runs on it.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static LISTENING: Once = Once::new();

/// Runs `what` on this thread; also returns the messages of all panics meanwhile, caught or not.
pub fn hearing<T>(what: impl FnOnce() -> T) -> (T, Vec<String>) {
    LISTENING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // A thread that is ending has no such local any more.
            let _ = HEARD.try_with(|heard| {
                if let Some(heard) = heard.borrow_mut().as_mut() {
                    heard.push(panic.to_string());
                }
            });
            before(panic);
        }));
    });
    let outer = HEARD.replace(Some(Vec::new()));
    let done = what();
    (done, HEARD.replace(outer).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::hearing;

    #[test]
    fn a_caught_panic_is_collected() {
        let (caught, heard) = hearing(|| catch_unwind(|| panic!("of seven")).is_err());
        assert!(caught);
        assert_eq!(heard.len(), 1);
        assert!(
            heard.iter().all(|panic| panic.contains("of seven") && panic.contains("panics.rs")),
            "{heard:?}"
        );
        assert_eq!(hearing(|| ()).1, Vec::<String>::new());
    }
}
