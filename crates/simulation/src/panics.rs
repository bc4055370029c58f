//! Collects panics of a thread, also those that the code under test catches.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// What the panics of this thread said and where, while a world runs on it.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `what` on this thread; also returns the messages of all panics meanwhile, caught or not.
pub fn collecting_panics<T>(what: impl FnOnce() -> T) -> (T, Vec<String>) {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // A thread that is ending has no such local any more.
            let _ = PANICS.try_with(|panics| {
                if let Some(panics) = panics.borrow_mut().as_mut() {
                    panics.push(panic.to_string());
                }
            });
            before(panic);
        }));
    });
    let outer = PANICS.replace(Some(Vec::new()));
    let done = what();
    (done, PANICS.replace(outer).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::collecting_panics;

    #[test]
    fn a_caught_panic_is_collected() {
        let (caught, panics) = collecting_panics(|| catch_unwind(|| panic!("of seven")).is_err());
        assert!(caught);
        assert_eq!(panics.len(), 1);
        assert!(
            panics.iter().all(|panic| panic.contains("of seven") && panic.contains("panics.rs")),
            "{panics:?}"
        );
        assert_eq!(collecting_panics(|| ()).1, Vec::<String>::new());
    }
}
