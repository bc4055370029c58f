//! State that all runtimes of this process on one store share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use everturn_provider::store::StoreIdentity;

/// The states of all stores. An entry lives as long as a runtime of that store.
pub(crate) struct SharedByStore<T>(Mutex<BTreeMap<StoreIdentity, Weak<T>>>);

impl<T: Default> SharedByStore<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The state of that store. A store without identity shares it with no other runtime.
    pub(crate) fn of(&self, store: Option<StoreIdentity>) -> Arc<T> {
        let Some(store) = store else { return Arc::default() };
        let mut by_store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        by_store.retain(|_, state| state.strong_count() > 0);
        if let Some(state) = by_store.get(&store).and_then(Weak::upgrade) {
            return state;
        }
        let state = Arc::default();
        by_store.insert(store, Arc::downgrade(&state));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_share_the_state_of_one_store_and_of_no_other() {
        let shared = SharedByStore::<Mutex<u8>>::new();
        let store = StoreIdentity::unique();
        let first = shared.of(Some(store.clone()));
        assert!(Arc::ptr_eq(&first, &shared.of(Some(store))));
        assert!(!Arc::ptr_eq(&first, &shared.of(Some(StoreIdentity::unique()))));
        assert!(!Arc::ptr_eq(&shared.of(None), &shared.of(None)));
    }

    #[test]
    fn the_state_of_a_store_is_forgotten_with_its_last_runtime() {
        let shared = SharedByStore::<Mutex<u8>>::new();
        let store = StoreIdentity::unique();
        drop(shared.of(Some(store.clone())));
        drop(shared.of(Some(StoreIdentity::unique())));
        assert!(!shared.0.lock().unwrap().contains_key(&store));
    }
}
