//! Who panics in a world is heard, even where somebody catches it and goes on.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// What the panics of this thread said and where, while a world runs on it.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static LISTENING: Once = Once::new();

/// Does something on this thread, and tells what panicked meanwhile.
pub(crate) fn hearing<T>(what: impl FnOnce() -> T) -> (T, Vec<String>) {
    LISTENING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // A thread that ends has nobody to tell.
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
    fn a_panic_that_somebody_catches_is_heard() {
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
