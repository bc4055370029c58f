//! Dead letters: rows of the queues that no instance will ever read, kept for repair. Reading them in pages, and deleting them.

use everturn_provider::ProviderError;
use everturn_provider::encoded::{stored_ms, unsigned};
use everturn_provider::management::{DeadLetterRecord, DeadLetterSelection};
use rusqlite::{Connection, Row};

use crate::columns;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::provider::SqliteProvider;
use crate::row_counts;

/// How many of them a page has at most, whatever its caller asks for.
const PAGE_ROWS: usize = 1_000;
/// How many bytes of work items end a page.
const PAGE_BYTES: usize = 1024 * 1024;
/// How many of them one transaction deletes at most.
const SLICE_ROWS: usize = 500;

const SELECT_PAGE: &str = "SELECT dead_letter_key, dead_lettered_at_ms, reason, instance_id, execution_id, activity_id, work_item \
     FROM everturn_dead_letters WHERE dead_letter_key > ?1 ORDER BY dead_letter_key LIMIT ?2";
const DELETE_ONE: &str = "DELETE FROM everturn_dead_letters WHERE dead_letter_key = ?1";
pub(crate) const DELETE_OLD: &str = "DELETE FROM everturn_dead_letters WHERE dead_letter_key IN (SELECT d.dead_letter_key \
     FROM everturn_dead_letters AS d WHERE d.dead_lettered_at_ms < ?1 ORDER BY d.dead_lettered_at_ms, d.dead_letter_key LIMIT ?2)";

/// `read_dead_letters`.
pub(crate) async fn read(
    provider: &SqliteProvider,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<DeadLetterRecord>, ProviderError> {
    let after = after.map_or(i64::MIN, stored_ms);
    let limit = row_counts::stored(limit.min(PAGE_ROWS));
    provider.read_at_length("read_dead_letters", move |conn| page(conn, after, limit)).await
}

fn page(conn: &Connection, after: i64, limit: i64) -> rusqlite::Result<Vec<DeadLetterRecord>> {
    let mut select = conn.prepare_cached(SELECT_PAGE)?;
    let (mut letters, mut bytes) = (Vec::new(), 0);
    for letter in select.query_map([after, limit], record)? {
        let letter = letter?;
        bytes += letter.work_item.as_ref().map_or(0, String::len);
        letters.push(letter);
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    Ok(letters)
}

/// A dead letter, whatever its columns hold: one that is damaged must not hide the others.
fn record(row: &Row<'_>) -> rusqlite::Result<DeadLetterRecord> {
    let at_ms = columns::integer(row, 1)?.unwrap_or(0);
    let mut record = DeadLetterRecord::new(
        unsigned(row.get(0)?),
        unsigned(at_ms),
        columns::text(row, 2)?.unwrap_or_default(),
    );
    record.instance_id = columns::text(row, 3)?;
    record.execution_id = columns::integer(row, 4)?.map(unsigned);
    record.activity_id = columns::integer(row, 5)?.map(unsigned);
    record.work_item = columns::text(row, 6)?;
    Ok(record)
}

/// `delete_dead_letters`, slice by slice.
pub(crate) async fn delete(
    provider: &SqliteProvider,
    which: DeadLetterSelection,
) -> Result<u64, ProviderError> {
    let mut deleted = 0;
    match which {
        DeadLetterSelection::Keys(keys) => {
            let keys: Vec<i64> = keys.into_iter().filter_map(|key| i64::try_from(key).ok()).collect();
            for slice in keys.chunks(SLICE_ROWS) {
                deleted += provider.call(DeleteDeadLetters::Keys(slice.to_vec())).await?;
            }
        }
        DeadLetterSelection::OlderThan(at_ms) => loop {
            let slice = provider.call(DeleteDeadLetters::OlderThan(stored_ms(at_ms))).await?;
            deleted += slice;
            if slice < row_counts::answered(SLICE_ROWS) {
                break;
            }
        },
        other => {
            let message = format!("this store cannot select dead letters by {other:?}");
            return Err(ProviderError::unsupported("delete_dead_letters", message));
        }
    }
    Ok(deleted)
}

/// Deletes some dead letters.
enum DeleteDeadLetters {
    Keys(Vec<i64>),
    /// The oldest of those from before this time.
    OlderThan(i64),
}

impl Verb for DeleteDeadLetters {
    type Answer = u64;
    const NAME: &'static str = "delete_dead_letters";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<u64, VerbFailure> {
        let deleted = match self {
            Self::Keys(keys) => {
                let mut delete = scope.conn.prepare_cached(DELETE_ONE)?;
                let mut deleted = 0;
                for key in keys {
                    deleted += delete.execute([key])?;
                }
                deleted
            }
            Self::OlderThan(at_ms) => {
                scope.conn.prepare_cached(DELETE_OLD)?.execute([*at_ms, row_counts::stored(SLICE_ROWS)])?
            }
        };
        scope.effects.freed |= deleted > 0;
        Ok(row_counts::answered(deleted))
    }
}
