//! Messages that the store acknowledged, and those that came with a committed turn: when the world has ended, the first
//! must be among the second.

use std::collections::BTreeMap;

use everturn::providers::WorkItem;

/// What became of messages, each known by its text.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// How often the store acknowledged this one.
    acknowledged: BTreeMap<String, u64>,
    /// What was fetched under a lock.
    fetched: BTreeMap<String, Vec<WorkItem>>,
    /// How often this one came with a turn that was committed.
    taken: BTreeMap<String, u64>,
}

impl Deliveries {
    /// The store acknowledged this message.
    pub(crate) fn acknowledged(&mut self, item: &WorkItem) {
        *self.acknowledged.entry(format!("{item:?}")).or_default() += 1;
    }

    /// These messages were fetched under a lock.
    pub(crate) fn fetched(&mut self, token: &str, messages: &[WorkItem]) {
        self.fetched.insert(token.to_owned(), messages.to_vec());
    }

    /// The turn under this lock was committed.
    pub(crate) fn taken(&mut self, token: &str) {
        for item in self.fetched.remove(token).unwrap_or_default() {
            *self.taken.entry(format!("{item:?}")).or_default() += 1;
        }
    }

    /// This message never was in the store: a turn was committed together with it.
    pub(crate) fn fused(&mut self, item: &WorkItem) {
        self.acknowledged(item);
        *self.taken.entry(format!("{item:?}")).or_default() += 1;
    }

    /// Messages that no committed turn took, or not as often as the store acknowledged them.
    pub(crate) fn lost(&self) -> impl Iterator<Item = String> {
        self.acknowledged.iter().filter_map(|(item, acknowledged)| {
            let taken = self.taken.get(item).copied().unwrap_or_default();
            (taken < *acknowledged).then(|| {
                format!("G1: {item} was acknowledged {acknowledged} times, turns took it {taken} times")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_lost_unless_a_committed_turn_took_it_as_often_as_it_was_stored() {
        let item = WorkItem::CancelInstance { instance: "i".into(), reason: "r".into() };
        let mut deliveries = Deliveries::default();
        deliveries.acknowledged(&item);
        deliveries.fetched("one", std::slice::from_ref(&item));
        assert_eq!(deliveries.lost().count(), 1, "fetched is not committed");
        deliveries.taken("one");
        assert_eq!(deliveries.lost().count(), 0);
        deliveries.acknowledged(&item);
        assert_eq!(deliveries.lost().count(), 1, "there were two of them");
    }
}
