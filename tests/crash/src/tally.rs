//! How many instances there were, and how many of them ended: of every case, however it ended itself.

use std::sync::{Arc, Mutex, PoisonError};

use crate::ledger::Ledger;

/// A run counts only if so many of a hundred instances finished.
const FINISHED_PERCENT_MIN: usize = 95;

/// The sum over all cases of a proof.
#[derive(Debug, Default)]
pub struct Tally {
    sums: Mutex<(usize, usize)>,
}

/// One case: what its ledger says when it is dropped is what counts.
pub struct Tallied<'a> {
    tally: &'a Tally,
    ledger: Arc<Ledger>,
}

impl Tally {
    /// A case begins. Given up, failed or done: its instances count.
    pub fn case(&self, ledger: &Arc<Ledger>) -> Tallied<'_> {
        Tallied { tally: self, ledger: Arc::clone(ledger) }
    }

    /// A case whose figures come from elsewhere.
    pub fn add(&self, instances: usize, finished: usize) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.0 += instances;
        sums.1 += finished;
    }

    /// Fails if too few instances finished: an empty pass is no pass.
    pub fn require_finished(&self) -> Result<(), String> {
        let (instances, finished) = *self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if instances > 0 && finished * 100 >= instances * FINISHED_PERCENT_MIN {
            Ok(())
        } else {
            Err(format!("{finished} of {instances} instances finished"))
        }
    }
}

impl Drop for Tallied<'_> {
    fn drop(&mut self) {
        let known = self.ledger.known();
        let finished = known.instances.values().filter(|told| told.outcome.is_some()).count();
        self.tally.add(known.instances.len(), finished);
    }
}
