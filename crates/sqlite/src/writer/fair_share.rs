//! Which pending operations a batch takes. Renewals come first, then calls of lock holders, but a share of each batch
//! belongs to newcomers, the operations that need no lock: large results of many workers must not keep a client waiting.

use crate::operation::{BatchOrder, Operation};
use crate::writer::BatchLimits;
use crate::writer::batch::WriterBatch;

/// Newcomers have one in so many operations and payload bytes of a batch, while calls of lock holders would fill it.
const NEWCOMERS_SHARE: usize = 4;

impl WriterBatch {
    /// Moves pending operations into the batch: renewals, calls of lock holders, newcomers, each kind in order of arrival.
    ///
    /// What one kind leaves of its share, the other takes. A newcomer that does not fit into the share waits for one batch;
    /// the next one takes it before calls of lock holders, which have the one after that. So none of them starves, and no
    /// batch is larger than the limits allow.
    pub(crate) fn take_pending(
        &mut self,
        pending: &mut Vec<Box<dyn Operation>>,
        limits: &BatchLimits,
        newcomer_owed: &mut bool,
    ) {
        pending.sort_by_key(|operation| operation.order());
        let holders_at = pending.partition_point(|operation| operation.order() < BatchOrder::LockHolder);
        let newcomers_at = pending.partition_point(|operation| operation.order() < BatchOrder::NewWork);
        let renewals = self.count(pending.iter().take(holders_at), |batch, _| !batch.is_full(limits));
        let newcomers = pending.iter().skip(newcomers_at);
        let in_share = self.count(newcomers.clone(), |batch, payload_bytes| {
            !batch.is_full(limits)
                && (batch.is_in_share(payload_bytes, limits) || (*newcomer_owed && batch.newcomers == 0))
        });
        let holders = pending.iter().take(newcomers_at).skip(holders_at);
        let holders = self.count(holders, |batch, _| !batch.is_full(limits));
        let beyond = self.count(newcomers.skip(in_share), |batch, _| !batch.is_full(limits));
        let newcomers = in_share + beyond;
        *newcomer_owed = self.newcomers == 0 && newcomers_at < pending.len();
        let newcomers: Vec<_> = pending.drain(newcomers_at..newcomers_at + newcomers).collect();
        let holders: Vec<_> = pending.drain(holders_at..holders_at + holders).collect();
        self.todo.extend(pending.drain(..renewals).chain(holders).chain(newcomers));
    }

    /// Counts operations in while they have a place, and returns how many have.
    fn count<'a>(
        &mut self,
        operations: impl Iterator<Item = &'a Box<dyn Operation>>,
        has_place: impl Fn(&Self, usize) -> bool,
    ) -> usize {
        let mut counted = 0;
        for operation in operations {
            let payload_bytes = operation.payload_bytes();
            if !has_place(self, payload_bytes) {
                break;
            }
            self.operations += 1;
            self.payload_bytes += payload_bytes;
            if operation.order() == BatchOrder::NewWork {
                self.newcomers += 1;
                self.newcomers_payload_bytes += payload_bytes;
            }
            counted += 1;
        }
        counted
    }

    /// Whether one more newcomer with so much payload is within their share.
    fn is_in_share(&self, payload_bytes: usize, limits: &BatchLimits) -> bool {
        self.newcomers < limits.operations_max / NEWCOMERS_SHARE
            && self.newcomers_payload_bytes + payload_bytes <= limits.payload_bytes_max / NEWCOMERS_SHARE
    }
}
