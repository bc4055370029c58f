//! The messages of a fetched turn: read by the writer as they are stored, decoded by the fetch.

use everturn_core::WorkItem;
use everturn_provider::store::MessageNotes;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::columns;

/// A message as it is stored, not decoded yet.
pub(crate) struct UndecodedMessage {
    seq: i64,
    work_item: Vec<u8>,
    notes: Option<Vec<u8>>,
}

impl UndecodedMessage {
    /// A message from the first three columns.
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let notes = if row.get_ref(2)? == ValueRef::Null { None } else { Some(columns::bytes(row, 2)?) };
        Ok(Self { seq: row.get(0)?, work_item: columns::bytes(row, 1)?, notes })
    }

    fn decode(&self) -> serde_json::Result<(WorkItem, MessageNotes)> {
        let notes = self.notes.as_deref().map(serde_json::from_slice).transpose()?;
        Ok((serde_json::from_slice(&self.work_item)?, notes.unwrap_or_default()))
    }
}

/// The messages of a turn that can be decoded, each with its notes, and why one cannot.
#[derive(Default)]
pub(crate) struct DecodedMessages {
    pub(crate) messages: Vec<WorkItem>,
    pub(crate) notes: Vec<MessageNotes>,
    pub(crate) damage: Option<String>,
}

pub(crate) fn decode_messages(stored: &[UndecodedMessage]) -> DecodedMessages {
    let mut decoded = DecodedMessages::default();
    for row in stored {
        match row.decode() {
            Ok((message, notes)) => {
                decoded.messages.push(message);
                decoded.notes.push(notes);
            }
            Err(error) => {
                let seq = row.seq;
                decoded
                    .damage
                    .get_or_insert_with(|| format!("orchestrator queue row {seq} is damaged: {error}"));
            }
        }
    }
    decoded
}

/// Name and version that a start among the messages gives.
pub(crate) fn name_in_messages(messages: &[WorkItem]) -> Option<(String, String)> {
    messages.iter().find_map(|message| match message {
        WorkItem::StartOrchestration { orchestration, version, .. }
        | WorkItem::ContinueAsNew { orchestration, version, .. } => {
            Some((orchestration.clone(), version.clone().unwrap_or_else(|| "unknown".to_owned())))
        }
        _ => None,
    })
}
