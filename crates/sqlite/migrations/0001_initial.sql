-- One row for every instance that exists or has messages waiting.
--
-- The instance exists once `created_at_ms` is set: the first commit that names its orchestration does that. Before, the row
-- only holds the lock and the place of its messages in the queue.
--
-- Rows that belong to an instance refer to its key. The order of the writer's statements keeps these references intact, so
-- that it need not have them checked; a tool that has them checked and would break one is refused. Only the rows that the
-- garbage list names have lost their instance or their execution. A key is not used again while the list names it.
CREATE TABLE everturn_instances (
    instance_key INTEGER PRIMARY KEY,
    instance_id TEXT NOT NULL UNIQUE,
    orchestration_name TEXT,
    orchestration_version TEXT,
    current_execution_id INTEGER CHECK (current_execution_id >= 1),
    parent_instance_id TEXT,
    -- The first of its ancestors; itself if it has no parent.
    root_instance_id TEXT,
    created_at_ms INTEGER,
    updated_at_ms INTEGER,
    -- The status of its current execution, and since when that has ended.
    status TEXT CHECK (status IN ('Running', 'Completed', 'Failed', 'ContinuedAsNew')),
    ended_at_ms INTEGER,
    -- The category of the failure, if it has failed.
    failure_kind TEXT,
    -- What it waits for, such as `event/Approval`, and since when. Nothing while it waits for activities alone.
    waiting_for TEXT,
    waiting_since_ms INTEGER,
    -- Why and since when it is parked, how often it was, and when it is tried again.
    parked_reason TEXT,
    parked_since_ms INTEGER,
    parked_count INTEGER NOT NULL DEFAULT 0 CHECK (parked_count >= 0),
    next_try_ms INTEGER,
    -- What a queued start names, until it has a name.
    start_name TEXT,
    start_version TEXT,
    paused_at_ms INTEGER,
    pause_note TEXT,
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    held_at_ms INTEGER,
    memo TEXT,
    -- The engine version that its messages need, as major * 1000000 + minor * 1000 + patch: older nodes pass it over. It
    -- never sinks.
    needs_engine INTEGER NOT NULL DEFAULT 0 CHECK (needs_engine BETWEEN 0 AND 999999999),
    -- The random value of the last commit: a copy in memory is compared with it.
    turn_stamp INTEGER,
    -- The events of the current execution: their number, their bytes and the greatest id.
    event_count INTEGER NOT NULL DEFAULT 0 CHECK (event_count >= 0),
    event_bytes INTEGER NOT NULL DEFAULT 0 CHECK (event_bytes >= 0),
    last_event_id INTEGER NOT NULL DEFAULT 0 CHECK (last_event_id >= 0),
    -- Whether its messages need no start among them: it exists, or its history has a start.
    startable INTEGER NOT NULL DEFAULT 0 CHECK (startable IN (0, 1)),
    -- Its oldest visible message, if the instance is ready.
    ready_seq INTEGER,
    -- Since when messages wait for its start, if no start was queued when they came. A sweep clears it.
    unstarted_since_ms INTEGER,
    -- Its visible messages are queue messages only, and no start is queued: the next fetch deletes them.
    orphaned INTEGER NOT NULL DEFAULT 0 CHECK (orphaned IN (0, 1)),
    lock_token TEXT,
    locked_until_ms INTEGER,
    lock_ms INTEGER,
    -- The provider that took the lock, as a file beside the database names it; without a lock it says nothing.
    lock_owner INTEGER,
    -- Given back with a delay: not ready before that, whatever else is sent to it.
    delayed_until_ms INTEGER,
    -- The handler that the runtime lacked which gave it back: it is ready for runtimes that have it. The version is '*' for
    -- the one that the runtime chooses, or '=' and the exact one.
    missing_handler TEXT,
    missing_version TEXT,
    CHECK ((missing_handler IS NULL) = (missing_version IS NULL)),
    CHECK (missing_handler IS NULL OR delayed_until_ms IS NOT NULL),
    CHECK (ready_seq IS NULL OR delayed_until_ms IS NULL OR missing_handler IS NOT NULL),
    CHECK ((created_at_ms IS NULL) = (orchestration_name IS NULL)),
    CHECK ((created_at_ms IS NULL) = (orchestration_version IS NULL)),
    CHECK ((created_at_ms IS NULL) = (current_execution_id IS NULL)),
    CHECK (created_at_ms IS NULL OR startable = 1),
    CHECK ((lock_token IS NULL) = (locked_until_ms IS NULL)),
    CHECK ((lock_token IS NULL) = (lock_ms IS NULL))
) STRICT;

CREATE INDEX everturn_instances_unstarted ON everturn_instances (unstarted_since_ms) WHERE unstarted_since_ms IS NOT NULL;
CREATE INDEX everturn_instances_ready ON everturn_instances (ready_seq) WHERE ready_seq IS NOT NULL AND delayed_until_ms IS NULL;
CREATE INDEX everturn_instances_missing_handler ON everturn_instances (missing_handler, missing_version, ready_seq)
    WHERE ready_seq IS NOT NULL AND delayed_until_ms IS NOT NULL;
CREATE INDEX everturn_instances_delayed ON everturn_instances (delayed_until_ms) WHERE delayed_until_ms IS NOT NULL;
CREATE INDEX everturn_instances_orphaned ON everturn_instances (orphaned) WHERE orphaned = 1;
-- An expired lock leaves this index: its instance is ready, or the lock is cleared.
CREATE INDEX everturn_instances_locked ON everturn_instances (locked_until_ms) WHERE lock_token IS NOT NULL AND ready_seq IS NULL;
CREATE INDEX everturn_instances_by_creation ON everturn_instances (created_at_ms) WHERE created_at_ms IS NOT NULL;
CREATE INDEX everturn_instances_by_parent ON everturn_instances (parent_instance_id) WHERE parent_instance_id IS NOT NULL;
-- One for every filter of lists. A step in the middle of an execution changes none of these columns.
CREATE INDEX everturn_instances_by_root ON everturn_instances (root_instance_id) WHERE parent_instance_id IS NOT NULL;
CREATE INDEX everturn_instances_by_type ON everturn_instances (orchestration_name, orchestration_version)
    WHERE orchestration_name IS NOT NULL;
CREATE INDEX everturn_instances_by_version ON everturn_instances (orchestration_version)
    WHERE orchestration_version IS NOT NULL;
CREATE INDEX everturn_instances_by_status ON everturn_instances (status) WHERE status IS NOT NULL;
CREATE INDEX everturn_instances_by_end ON everturn_instances (ended_at_ms) WHERE ended_at_ms IS NOT NULL;
CREATE INDEX everturn_instances_by_failure ON everturn_instances (failure_kind) WHERE failure_kind IS NOT NULL;
CREATE INDEX everturn_instances_waiting ON everturn_instances (waiting_for, waiting_since_ms) WHERE waiting_for IS NOT NULL;
CREATE INDEX everturn_instances_parked ON everturn_instances (parked_since_ms) WHERE parked_since_ms IS NOT NULL;
CREATE INDEX everturn_instances_paused ON everturn_instances (paused_at_ms) WHERE paused_at_ms IS NOT NULL;
CREATE INDEX everturn_instances_held ON everturn_instances (held_at_ms) WHERE held = 1;
CREATE INDEX everturn_instances_scheduled ON everturn_instances (start_name, start_version)
    WHERE start_name IS NOT NULL AND created_at_ms IS NULL;

-- One row for every execution, written when it is created and when it ends: while the current execution runs, its events are
-- counted in the row of its instance.
CREATE TABLE everturn_executions (
    instance_key INTEGER NOT NULL REFERENCES everturn_instances (instance_key),
    execution_id INTEGER NOT NULL CHECK (execution_id >= 1),
    status TEXT NOT NULL CHECK (status IN ('Running', 'Completed', 'Failed', 'ContinuedAsNew')),
    output TEXT,
    started_at_ms INTEGER NOT NULL,
    completed_at_ms INTEGER,
    pinned_engine_version TEXT,
    event_count INTEGER NOT NULL DEFAULT 0 CHECK (event_count >= 0),
    event_bytes INTEGER NOT NULL DEFAULT 0 CHECK (event_bytes >= 0),
    -- Queue messages that the start event carried in.
    carried_count INTEGER NOT NULL DEFAULT 0 CHECK (carried_count >= 0),
    -- The start event, and the last event that completed or failed the orchestration.
    start_event_id INTEGER,
    outcome_event_id INTEGER,
    PRIMARY KEY (instance_key, execution_id),
    CHECK ((status = 'Running') = (completed_at_ms IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX everturn_executions_ended ON everturn_executions (completed_at_ms) WHERE status IN ('Completed', 'Failed');

-- Events, one row for every commit. A row holds consecutive events: those of a commit with gaps, or with very many events, are
-- several rows. No two rows of an execution overlap.
CREATE TABLE everturn_history (
    history_key INTEGER PRIMARY KEY,
    instance_key INTEGER NOT NULL REFERENCES everturn_instances (instance_key),
    execution_id INTEGER NOT NULL,
    first_event_id INTEGER NOT NULL CHECK (first_event_id >= 1),
    last_event_id INTEGER NOT NULL,
    -- A JSON array.
    events TEXT NOT NULL,
    CHECK (last_event_id >= first_event_id)
) STRICT;

CREATE UNIQUE INDEX everturn_history_by_event ON everturn_history (instance_key, execution_id, first_event_id);

-- Messages to instances. A message is visible from `visible_at_ms` on; once that was noticed it is 0, so that a clock set
-- back hides nothing.
CREATE TABLE everturn_orchestrator_queue (
    seq INTEGER PRIMARY KEY,
    instance_key INTEGER NOT NULL REFERENCES everturn_instances (instance_key),
    kind TEXT NOT NULL,
    is_start INTEGER NOT NULL CHECK (is_start IN (0, 1)),
    -- When it was sent, or when it is due if it is a timer: the order of an instance's messages, those with one arrival by
    -- `seq`. Never changed.
    arrived_at_ms INTEGER NOT NULL,
    visible_at_ms INTEGER NOT NULL CHECK (visible_at_ms >= 0),
    -- The execution that a timer belongs to.
    timer_execution_id INTEGER,
    -- Nothing waits for the timer any more: its execution has ended, or a later one began.
    unawaited INTEGER NOT NULL DEFAULT 0 CHECK (unawaited IN (0, 1)),
    -- Whether the holder of the instance's lock has it.
    tagged INTEGER NOT NULL DEFAULT 0 CHECK (tagged IN (0, 1)),
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    -- A large one is in a table of its own, so that a lock does not write it again.
    work_item TEXT,
    -- What the engine knows of the message beyond its fields, as JSON; most messages have no notes.
    notes TEXT,
    CHECK (tagged = 0 OR visible_at_ms = 0)
) STRICT;

CREATE INDEX everturn_orchestrator_queue_by_instance ON everturn_orchestrator_queue (instance_key, visible_at_ms, arrived_at_ms);
CREATE INDEX everturn_orchestrator_queue_delayed ON everturn_orchestrator_queue (visible_at_ms) WHERE visible_at_ms > 0;
CREATE INDEX everturn_orchestrator_queue_unawaited ON everturn_orchestrator_queue (visible_at_ms) WHERE unawaited = 1;
CREATE INDEX everturn_orchestrator_queue_starts ON everturn_orchestrator_queue (instance_key) WHERE is_start = 1;

CREATE TABLE everturn_message_payloads (
    seq INTEGER PRIMARY KEY REFERENCES everturn_orchestrator_queue (seq),
    work_item TEXT NOT NULL
) STRICT;

CREATE TRIGGER everturn_message_payload_ends AFTER DELETE ON everturn_orchestrator_queue WHEN old.work_item IS NULL BEGIN
    DELETE FROM everturn_message_payloads WHERE seq = old.seq;
END;

-- Activities to run, oldest first. `ready` says that the row is visible and not locked; an expired lock stays in its row
-- until another worker takes the row over. A row that a worker gave back because it lacks the handler is ready for workers
-- that have it, and becomes visible to the others later.
CREATE TABLE everturn_worker_queue (
    seq INTEGER PRIMARY KEY,
    instance_id TEXT NOT NULL,
    execution_id INTEGER NOT NULL,
    activity_id INTEGER NOT NULL,
    session_id TEXT,
    tag TEXT,
    visible_at_ms INTEGER NOT NULL DEFAULT 0 CHECK (visible_at_ms >= 0),
    ready INTEGER NOT NULL DEFAULT 1 CHECK (ready IN (0, 1)),
    attempt_count INTEGER NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    lock_token TEXT,
    locked_until_ms INTEGER,
    lock_ms INTEGER,
    -- The provider that took the lock; without a lock it says nothing.
    lock_owner INTEGER,
    missing_handler TEXT,
    -- The name of the activity.
    name TEXT,
    -- The engine version that it needs, as for instances: older workers pass it over.
    needs_engine INTEGER NOT NULL DEFAULT 0 CHECK (needs_engine BETWEEN 0 AND 999999999),
    priority INTEGER NOT NULL DEFAULT 0,
    keyed INTEGER NOT NULL DEFAULT 0 CHECK (keyed IN (0, 1)),
    held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1)),
    held_at_ms INTEGER,
    parked INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
    settled INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1)),
    retry_no INTEGER NOT NULL DEFAULT 0 CHECK (retry_no >= 0),
    last_failure TEXT,
    heartbeat TEXT,
    start_by_ms INTEGER,
    close_by_ms INTEGER,
    first_started_ms INTEGER,
    completion_key TEXT,
    -- A large one is in a table of its own.
    work_item TEXT,
    CHECK ((lock_token IS NULL) = (locked_until_ms IS NULL)),
    CHECK ((lock_token IS NULL) = (lock_ms IS NULL)),
    CHECK (ready = 0 OR visible_at_ms = 0 OR missing_handler IS NOT NULL),
    CHECK (missing_handler IS NULL OR (ready = 1 AND visible_at_ms > 0)),
    CHECK (ready = 1 OR visible_at_ms > 0 OR lock_token IS NOT NULL)
) STRICT;

-- With the needed version, so that activities for newer engines are passed over without reading their rows.
CREATE INDEX everturn_worker_queue_ready ON everturn_worker_queue (tag, seq, needs_engine)
    WHERE ready = 1 AND session_id IS NULL AND visible_at_ms = 0;
CREATE INDEX everturn_worker_queue_missing_handler ON everturn_worker_queue (missing_handler, seq, needs_engine)
    WHERE ready = 1 AND session_id IS NULL AND visible_at_ms > 0;
CREATE INDEX everturn_worker_queue_session_ready ON everturn_worker_queue (ready) WHERE ready = 1 AND session_id IS NOT NULL;
CREATE INDEX everturn_worker_queue_session_heads ON everturn_worker_queue (session_id) WHERE ready = 1 AND session_id IS NOT NULL;
CREATE INDEX everturn_worker_queue_by_session ON everturn_worker_queue (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX everturn_worker_queue_by_activity ON everturn_worker_queue (instance_id, execution_id, activity_id);
CREATE INDEX everturn_worker_queue_locked ON everturn_worker_queue (locked_until_ms) WHERE lock_token IS NOT NULL AND ready = 0;
CREATE INDEX everturn_worker_queue_delayed ON everturn_worker_queue (visible_at_ms) WHERE visible_at_ms > 0;

CREATE TABLE everturn_activity_payloads (
    seq INTEGER PRIMARY KEY REFERENCES everturn_worker_queue (seq),
    work_item TEXT NOT NULL
) STRICT;

CREATE TRIGGER everturn_activity_payload_ends AFTER DELETE ON everturn_worker_queue WHEN old.work_item IS NULL BEGIN
    DELETE FROM everturn_activity_payloads WHERE seq = old.seq;
END;

-- Which worker owns a session, and until when.
CREATE TABLE everturn_sessions (
    session_id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    active_at_ms INTEGER NOT NULL,
    -- The provider that leased or renewed it.
    lock_owner INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX everturn_sessions_by_lease ON everturn_sessions (lease_until_ms);
CREATE INDEX everturn_sessions_by_owner ON everturn_sessions (owner_id);

-- The custom status of instances that have set one.
CREATE TABLE everturn_custom_statuses (
    instance_key INTEGER PRIMARY KEY REFERENCES everturn_instances (instance_key),
    custom_status TEXT,
    custom_status_version INTEGER NOT NULL CHECK (custom_status_version >= 1)
) STRICT;

-- The key-value store as completed executions left it, and what the current execution wrote over it. A missing value
-- in the delta is a cleared key.
CREATE TABLE everturn_kv_base (
    instance_key INTEGER NOT NULL REFERENCES everturn_instances (instance_key),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    last_updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (instance_key, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE everturn_kv_delta (
    instance_key INTEGER NOT NULL REFERENCES everturn_instances (instance_key),
    key TEXT NOT NULL,
    value TEXT,
    last_updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (instance_key, key)
) STRICT, WITHOUT ROWID;

-- What the keys of an execution were before it ended: the first value before each of its changes.
CREATE TABLE everturn_kv_undo (
    instance_key INTEGER NOT NULL REFERENCES everturn_instances (instance_key),
    execution_id INTEGER NOT NULL CHECK (execution_id >= 1),
    key TEXT NOT NULL,
    old_value TEXT,
    old_updated_at_ms INTEGER,
    PRIMARY KEY (instance_key, execution_id, key)
) STRICT, WITHOUT ROWID;

-- Small keyed rows of the engine, such as schedules.
CREATE TABLE everturn_records (
    record_key INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    -- Counts its writes.
    version INTEGER NOT NULL CHECK (version >= 1),
    owner TEXT,
    data TEXT NOT NULL,
    -- When it is looked at next.
    due_at_ms INTEGER,
    -- The instance whose end makes it due.
    wake_on TEXT,
    lock_token TEXT,
    locked_until_ms INTEGER,
    lock_ms INTEGER,
    lock_owner INTEGER,
    UNIQUE (kind, id),
    CHECK ((lock_token IS NULL) = (locked_until_ms IS NULL)),
    CHECK ((lock_token IS NULL) = (lock_ms IS NULL))
) STRICT;

CREATE INDEX everturn_records_due ON everturn_records (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX everturn_records_waking ON everturn_records (wake_on) WHERE wake_on IS NOT NULL;
CREATE INDEX everturn_records_by_owner ON everturn_records (owner) WHERE owner IS NOT NULL;

-- What is held back: orchestrations or activities of a name and a version; an empty version is any.
CREATE TABLE everturn_holds (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL,
    note TEXT,
    held_by TEXT,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER,
    PRIMARY KEY (kind, name, version)
) STRICT, WITHOUT ROWID;

-- The nodes that work on the file.
CREATE TABLE everturn_nodes (
    node_id TEXT PRIMARY KEY,
    -- As the locks name it.
    lock_owner INTEGER,
    version TEXT NOT NULL,
    started_at_ms INTEGER NOT NULL,
    seen_at_ms INTEGER NOT NULL,
    slots INTEGER NOT NULL DEFAULT 0 CHECK (slots >= 0),
    data TEXT
) STRICT, WITHOUT ROWID;

-- The garbage list: instances that were deleted, and executions that were pruned, whose many rows are removed in slices. No
-- read finds those rows.
CREATE TABLE everturn_garbage (
    instance_key INTEGER NOT NULL,
    -- The pruned execution; 0 if the whole instance was deleted.
    execution_id INTEGER NOT NULL CHECK (execution_id >= 0),
    PRIMARY KEY (instance_key, execution_id)
) STRICT, WITHOUT ROWID;

-- One row: how many instances exist, also by the status of their current execution, how many executions, how many events.
-- Every transaction that changes one of these numbers writes it here, so that no table need be counted.
CREATE TABLE everturn_totals (
    totals_key INTEGER PRIMARY KEY CHECK (totals_key = 1),
    instances INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    executions INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO everturn_totals (totals_key) VALUES (1);

-- Dead letters: damaged worker rows whose instance is not known, kept for repair, and messages whose instance was never
-- started. No key is used again: what has read the letters up to a key has missed none, and a repeated deletion removes no
-- other letter.
CREATE TABLE everturn_dead_letters (
    dead_letter_key INTEGER PRIMARY KEY AUTOINCREMENT,
    dead_lettered_at_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    instance_id TEXT,
    execution_id INTEGER,
    activity_id INTEGER,
    work_item TEXT
) STRICT;

CREATE INDEX everturn_dead_letters_by_age ON everturn_dead_letters (dead_lettered_at_ms);
