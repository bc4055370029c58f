//! The tables with rows of instances: what a deleted instance or a pruned execution leaves to be removed.

use rusqlite::Connection;

use crate::payloads::message_octets;

/// A table with rows of an instance or of an execution.
pub(crate) struct OwnedTable {
    /// Some rows: the columns that name a row within the instance, and last the bytes of its payload. Its parameters are the
    /// key of the instance, how many rows at most, and the execution.
    pub(crate) select: &'static str,
    /// Deletes one of them. Its parameters are the key of the instance, and the columns that name the row.
    pub(crate) delete_one: &'static str,
    /// Deletes them all. Its parameters are the key of the instance, and the execution.
    delete_all: &'static str,
}

/// The tables of an owner, with the condition on a row `q` in selections and the same in deletions. For each table: the columns
/// that name a row, the same as a condition, and the bytes of the payload in row `q`, which are known without reading it.
///
/// `$sizes` gives the number of rows and their bytes. It counts no more rows than its second parameter says.
macro_rules! owned_tables {
    ($tables:ident, $sizes:ident, $of_owner:literal, $deleted:literal,
        $($table:literal: $row:literal, $is_row:literal, $octets:expr;)+) => {
        pub(crate) const $tables: &[OwnedTable] = &[$(OwnedTable {
            select: concat!("SELECT ", $row, ", ", $octets, " FROM ", $table, " AS q WHERE ", $of_owner, " LIMIT ?2"),
            delete_one: concat!("DELETE FROM ", $table, " WHERE instance_key = ?1 AND ", $is_row),
            delete_all: concat!("DELETE FROM ", $table, " WHERE ", $deleted),
        }),+];
        pub(crate) const $sizes: &str = concat!(
            "SELECT count(*), coalesce(sum(octets), 0) FROM (SELECT 0 AS octets WHERE 0",
            $(" UNION ALL SELECT ", $octets, " FROM ", $table, " AS q WHERE ", $of_owner,)+
            " LIMIT ?2)"
        );
    };
}

owned_tables! { OF_INSTANCE, SIZE_OF_INSTANCE, "q.instance_key = ?1", "instance_key = ?1",
    "everturn_history": "q.history_key", "history_key = ?2", "octet_length(q.events)";
    "everturn_executions": "q.execution_id", "execution_id IS ?2", "octet_length(q.output)";
    "everturn_orchestrator_queue": "q.seq", "seq = ?2", message_octets!();
    "everturn_custom_statuses": "q.instance_key", "instance_key = ?2", "octet_length(q.custom_status)";
    "everturn_kv_base": "q.key", "key IS ?2", "octet_length(q.value)";
    "everturn_kv_delta": "q.key", "key IS ?2", "octet_length(q.value)";
    "everturn_kv_undo": "q.execution_id, q.key", "execution_id IS ?2 AND key IS ?3", "octet_length(q.old_value)";
}

owned_tables! { OF_EXECUTION, SIZE_OF_EXECUTION,
    "q.instance_key = ?1 AND q.execution_id = ?3", "instance_key = ?1 AND execution_id = ?2",
    "everturn_history": "q.history_key", "history_key = ?2", "octet_length(q.events)";
    "everturn_kv_undo": "q.execution_id, q.key", "execution_id IS ?2 AND key IS ?3", "octet_length(q.old_value)";
}

/// Removes everything that belongs to an instance, but not its own row.
pub(crate) fn remove_instance(conn: &Connection, key: i64) -> rusqlite::Result<()> {
    for table in OF_INSTANCE {
        conn.prepare_cached(table.delete_all)?.execute([key])?;
    }
    Ok(())
}

/// Removes everything that belongs to an execution, but not its own row.
pub(crate) fn remove_execution(conn: &Connection, key: i64, execution_id: i64) -> rusqlite::Result<()> {
    for table in OF_EXECUTION {
        conn.prepare_cached(table.delete_all)?.execute([key, execution_id])?;
    }
    Ok(())
}

/// All statements that find and delete these rows.
#[cfg(test)]
pub(crate) fn statements() -> impl Iterator<Item = &'static str> {
    let tables = OF_INSTANCE.iter().chain(OF_EXECUTION);
    tables.flat_map(|table| [table.select, table.delete_one, table.delete_all])
}
