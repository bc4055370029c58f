//! Messages that the store said it has, and those that came with a turn that was committed: the first must be among the
//! second when everything is over.

use std::collections::BTreeMap;

use everturn::providers::WorkItem;

/// Who was told what about messages, each known by its text.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// How often the store said that it has this one.
    told: BTreeMap<String, u64>,
    /// What was handed out under a lock.
    handed_out: BTreeMap<String, Vec<WorkItem>>,
    /// How often this one was handed out to a turn that was committed.
    taken: BTreeMap<String, u64>,
}

impl Deliveries {
    /// The store said that it has this message.
    pub(crate) fn told(&mut self, item: &WorkItem) {
        *self.told.entry(format!("{item:?}")).or_default() += 1;
    }

    /// These messages were handed out under a lock.
    pub(crate) fn handed_out(&mut self, token: &str, messages: &[WorkItem]) {
        self.handed_out.insert(token.to_owned(), messages.to_vec());
    }

    /// The turn under this lock was committed.
    pub(crate) fn taken(&mut self, token: &str) {
        for item in self.handed_out.remove(token).unwrap_or_default() {
            *self.taken.entry(format!("{item:?}")).or_default() += 1;
        }
    }

    /// Messages that no committed turn took, or not as often as the store said that it has them.
    pub(crate) fn lost(&self) -> impl Iterator<Item = String> {
        self.told.iter().filter_map(|(item, told)| {
            let taken = self.taken.get(item).copied().unwrap_or_default();
            (taken < *told)
                .then(|| format!("G1: told {told} times that {item} is stored, turns took it {taken} times"))
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
        deliveries.told(&item);
        deliveries.handed_out("one", std::slice::from_ref(&item));
        assert_eq!(deliveries.lost().count(), 1, "handed out is not committed");
        deliveries.taken("one");
        assert_eq!(deliveries.lost().count(), 0);
        deliveries.told(&item);
        assert_eq!(deliveries.lost().count(), 1, "there were two of them");
    }
}
