//! The garbage list: many rows of a deleted instance or a pruned execution are not removed by the transaction that deletes
//! it, but later, in slices. No read finds them meanwhile: they are found by the key of an instance, and its row is gone.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::owned_rows::{self, OF_EXECUTION, OF_INSTANCE, OwnedTable};
use crate::unreadable::RowPlace;

/// The key of a new instance: above all keys in the garbage list, or NULL, which is one above all other instances.
macro_rules! new_instance_key {
    () => {
        "(SELECT max(g.instance_key) + 1 FROM everturn_garbage AS g WHERE g.instance_key < 9223372036854775807 \
         AND g.instance_key >= coalesce((SELECT max(k.instance_key) FROM everturn_instances AS k), 0))"
    };
}
pub(crate) use new_instance_key;

/// The cost of one slice: a removed row costs one, and one more for every page of its payload. A slice of rows takes a few
/// milliseconds.
pub(crate) const SLICE_COST: usize = 1_000;
const PAGE_BYTES: usize = 4_096;

/// How much more a slice may cost.
#[derive(Debug)]
pub(crate) struct SliceBudget {
    left: usize,
}

impl Default for SliceBudget {
    fn default() -> Self {
        Self { left: SLICE_COST }
    }
}

impl SliceBudget {
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn spend(&mut self, cost: usize) {
        self.left = self.left.saturating_sub(cost);
    }

    /// Pays for rows of this number and these bytes; `false` if they cost too much.
    fn pays(&mut self, (rows, bytes): (usize, usize)) -> bool {
        let cost = rows.saturating_add(bytes / PAGE_BYTES);
        let is_enough = cost <= self.left;
        if is_enough {
            self.left -= cost;
        }
        is_enough
    }
}

const LIST: &str = "INSERT OR IGNORE INTO everturn_garbage (instance_key, execution_id) VALUES (?1, ?2)";
const FIRST: &str =
    "SELECT instance_key, execution_id FROM everturn_garbage ORDER BY instance_key, execution_id LIMIT 1";
const FIRST_AFTER: &str = "SELECT instance_key, execution_id FROM everturn_garbage WHERE instance_key > ?1 \
     ORDER BY instance_key, execution_id LIMIT 1";
const STRIKE: &str = "DELETE FROM everturn_garbage WHERE instance_key = ?1 AND execution_id = ?2";
// Nothing that exists is garbage: such an entry is damaged.
const EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM everturn_instances WHERE instance_key = ?1 AND (?2 = 0 \
     OR EXISTS (SELECT 1 FROM everturn_executions AS e WHERE e.instance_key = ?1 AND e.execution_id = ?2)))";
const ANY: &str = "SELECT EXISTS (SELECT 1 FROM everturn_garbage)";
const IS_LISTED: &str =
    "SELECT EXISTS (SELECT 1 FROM everturn_garbage WHERE instance_key = ?1 AND execution_id IN (0, ?2))";

/// Whether all rows of an instance fit into the slice; if so, it pays for them. If not, they belong into the list.
pub(crate) fn fits_instance(conn: &Connection, key: i64, budget: &mut SliceBudget) -> rusqlite::Result<bool> {
    let mut rows = conn.prepare_cached(owned_rows::SIZE_OF_INSTANCE)?;
    let found = rows.query_row([key, limit(budget)], |row| Ok((number(row, 0)?, number(row, 1)?)))?;
    Ok(budget.pays(found))
}

/// The same for the rows of an execution.
pub(crate) fn fits_execution(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    budget: &mut SliceBudget,
) -> rusqlite::Result<bool> {
    let mut rows = conn.prepare_cached(owned_rows::SIZE_OF_EXECUTION)?;
    let found =
        rows.query_row([key, limit(budget), execution_id], |row| Ok((number(row, 0)?, number(row, 1)?)))?;
    Ok(budget.pays(found))
}

/// One more row than the slice may have.
fn limit(budget: &SliceBudget) -> i64 {
    i64::try_from(budget.left).unwrap_or(i64::MAX).saturating_add(1)
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<usize> {
    Ok(usize::try_from(row.get::<_, i64>(column)?).unwrap_or(usize::MAX))
}

/// Leaves all rows of a deleted instance in the list.
pub(crate) fn list_instance(scope: &mut Scope<'_>, key: i64) -> Result<(), VerbFailure> {
    list_execution(scope, key, 0)
}

/// Leaves the rows of a pruned execution in the list.
pub(crate) fn list_execution(scope: &mut Scope<'_>, key: i64, execution_id: i64) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached(LIST)?.execute([key, execution_id])?;
    scope.effects.garbage = true;
    Ok(())
}

/// Whether the list has anything.
pub(crate) fn is_there(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached(ANY)?.query_row([], |row| row.get(0))
}

/// Whether the rows of an execution are garbage: it was pruned, or its instance was deleted.
pub(crate) fn is_listed(conn: &Connection, key: i64, execution_id: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached(IS_LISTED)?.query_row([key, execution_id], |row| row.get(0))
}

/// Removes what is left of a pruned execution at once: it is about to exist again.
pub(crate) fn finish_execution(conn: &Connection, key: i64, execution_id: i64) -> Result<(), VerbFailure> {
    if conn.prepare_cached(STRIKE)?.execute([key, execution_id])? > 0 {
        owned_rows::remove_execution(conn, key, execution_id)?;
    }
    Ok(())
}

/// Removes one slice of what the list names.
pub(crate) struct SweepGarbage;

impl Verb for SweepGarbage {
    type Answer = ();
    const NAME: &'static str = "sweep_garbage";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let swept = sweep(scope);
        if let Err(VerbFailure::Refused(error)) = &swept {
            tracing::error!(target: "everturn::providers::sqlite", %error,
                "rows of deleted instances cannot be removed; they take room until the file is repaired");
        }
        scope.effects.garbage = swept?;
        scope.effects.freed = true;
        Ok(())
    }
}

/// The first entry of the list, unless what it names cannot be read for now.
fn first(scope: &Scope<'_>) -> Result<Option<(i64, i64)>, VerbFailure> {
    if scope.rows.passes_over(RowPlace::GarbageList) {
        return Ok(None);
    }
    scope.rows.at(RowPlace::GarbageList);
    let entry = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let mut first = scope.conn.prepare_cached(FIRST)?.query_row([], entry).optional()?;
    while let Some((key, _)) = first
        && scope.rows.passes_over(RowPlace::Garbage(key))
    {
        first = scope.conn.prepare_cached(FIRST_AFTER)?.query_row([key], entry).optional()?;
    }
    scope.rows.done();
    Ok(first)
}

/// Removes one slice. Returns whether there is more.
fn sweep(scope: &Scope<'_>) -> Result<bool, VerbFailure> {
    let conn = scope.conn;
    let mut budget = SliceBudget::default();
    while !budget.is_spent() {
        let Some((key, execution_id)) = first(scope)? else { return Ok(false) };
        scope.rows.at(RowPlace::Garbage(key));
        if conn.prepare_cached(EXISTS)?.query_row([key, execution_id], |row| row.get(0))? {
            tracing::error!(target: "everturn::providers::sqlite", instance_key = key, execution_id,
                "the garbage list names rows that are in use; the entry is dropped and the rows are kept");
            conn.prepare_cached(STRIKE)?.execute([key, execution_id])?;
            budget.spend(1);
            continue;
        }
        for table in if execution_id == 0 { OF_INSTANCE } else { OF_EXECUTION } {
            remove_some(conn, table, key, execution_id, &mut budget)?;
        }
        if !budget.is_spent() {
            conn.prepare_cached(STRIKE)?.execute([key, execution_id])?;
            budget.spend(1);
        }
    }
    Ok(first(scope)?.is_some())
}

/// Removes rows of a table until there is none left or the budget is spent.
fn remove_some(
    conn: &Connection,
    table: &OwnedTable,
    key: i64,
    execution_id: i64,
    budget: &mut SliceBudget,
) -> Result<(), VerbFailure> {
    if budget.is_spent() {
        return Ok(());
    }
    // The columns that name one row, after those of another.
    let mut found: Vec<Value> = Vec::new();
    let mut select = conn.prepare_cached(table.select)?;
    let names = select.column_count().saturating_sub(1);
    {
        let by_execution = select.parameter_count() == 3;
        let mut rows = if by_execution {
            select.query(params![key, limit(budget), execution_id])?
        } else {
            select.query(params![key, limit(budget)])?
        };
        while !budget.is_spent()
            && let Some(row) = rows.next()?
        {
            let bytes = row.get::<_, Option<i64>>(names)?.and_then(|bytes| usize::try_from(bytes).ok());
            budget.spend(1 + bytes.unwrap_or(0) / PAGE_BYTES);
            for column in 0..names {
                found.push(row.get(column)?);
            }
        }
    }
    let (mut delete, key) = (conn.prepare_cached(table.delete_one)?, Value::Integer(key));
    for row in found.chunks(names.max(1)) {
        delete.execute(params_from_iter(std::iter::once(&key).chain(row)))?;
    }
    Ok(())
}
