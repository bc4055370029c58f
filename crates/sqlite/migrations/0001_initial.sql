-- One row for every instance that exists or has messages waiting.
--
-- The instance exists once `created_at_ms` is set: the first commit that names its orchestration does that. Before, the row
-- only holds the lock and the place of its messages in the queue.
--
-- Rows that belong to an instance refer to its key. The order of the writer's statements keeps these references intact, so
-- that it need not have them checked; a tool that has them checked and would break one is refused. Only the rows that the
-- garbage list names have lost their instance or their execution. A key is not used again while the list names it.
CREATE TABLE instances (
    instance_key INTEGER PRIMARY KEY,
    instance_id TEXT NOT NULL UNIQUE,
    orchestration_name TEXT,
    orchestration_version TEXT,
    current_execution_id INTEGER CHECK (current_execution_id >= 1),
    parent_instance_id TEXT,
    created_at_ms INTEGER,
    updated_at_ms INTEGER,
    custom_status TEXT,
    custom_status_version INTEGER NOT NULL DEFAULT 0 CHECK (custom_status_version >= 0),
    -- The random value of the last commit: a copy in memory is compared with it.
    turn_stamp INTEGER,
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

CREATE INDEX instances_unstarted ON instances (unstarted_since_ms) WHERE unstarted_since_ms IS NOT NULL;
CREATE INDEX instances_ready ON instances (ready_seq) WHERE ready_seq IS NOT NULL AND delayed_until_ms IS NULL;
CREATE INDEX instances_missing_handler ON instances (missing_handler, missing_version, ready_seq)
    WHERE ready_seq IS NOT NULL AND delayed_until_ms IS NOT NULL;
CREATE INDEX instances_delayed ON instances (delayed_until_ms) WHERE delayed_until_ms IS NOT NULL;
CREATE INDEX instances_orphaned ON instances (orphaned) WHERE orphaned = 1;
-- An expired lock leaves this index: its instance is ready, or the lock is cleared.
CREATE INDEX instances_locked ON instances (locked_until_ms) WHERE lock_token IS NOT NULL AND ready_seq IS NULL;
CREATE INDEX instances_by_creation ON instances (created_at_ms) WHERE created_at_ms IS NOT NULL;
CREATE INDEX instances_by_parent ON instances (parent_instance_id) WHERE parent_instance_id IS NOT NULL;

CREATE TABLE executions (
    instance_key INTEGER NOT NULL REFERENCES instances (instance_key),
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

CREATE INDEX executions_ended ON executions (completed_at_ms) WHERE status IN ('Completed', 'Failed');

CREATE TABLE history (
    instance_key INTEGER NOT NULL REFERENCES instances (instance_key),
    execution_id INTEGER NOT NULL,
    event_id INTEGER NOT NULL CHECK (event_id >= 1),
    event_data TEXT NOT NULL,
    PRIMARY KEY (instance_key, execution_id, event_id)
) STRICT, WITHOUT ROWID;

-- Messages to instances. A message is visible from `visible_at_ms` on; once that was noticed it is 0, so that a clock set
-- back hides nothing.
CREATE TABLE orchestrator_queue (
    seq INTEGER PRIMARY KEY,
    instance_key INTEGER NOT NULL REFERENCES instances (instance_key),
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
    work_item TEXT NOT NULL,
    -- What the engine knows of the message beyond its fields, as JSON; most messages have no notes.
    notes TEXT,
    CHECK (tagged = 0 OR visible_at_ms = 0)
) STRICT;

CREATE INDEX orchestrator_queue_by_instance ON orchestrator_queue (instance_key, visible_at_ms, arrived_at_ms);
CREATE INDEX orchestrator_queue_delayed ON orchestrator_queue (visible_at_ms) WHERE visible_at_ms > 0;
CREATE INDEX orchestrator_queue_unawaited ON orchestrator_queue (visible_at_ms) WHERE unawaited = 1;
CREATE INDEX orchestrator_queue_starts ON orchestrator_queue (instance_key) WHERE is_start = 1;

-- Activities to run, oldest first. `ready` says that the row is visible and not locked; an expired lock stays in its row
-- until another worker takes the row over. A row that a worker gave back because it lacks the handler is ready for workers
-- that have it, and becomes visible to the others later.
CREATE TABLE worker_queue (
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
    work_item TEXT NOT NULL,
    CHECK ((lock_token IS NULL) = (locked_until_ms IS NULL)),
    CHECK ((lock_token IS NULL) = (lock_ms IS NULL)),
    CHECK (ready = 0 OR visible_at_ms = 0 OR missing_handler IS NOT NULL),
    CHECK (missing_handler IS NULL OR (ready = 1 AND visible_at_ms > 0)),
    CHECK (ready = 1 OR visible_at_ms > 0 OR lock_token IS NOT NULL)
) STRICT;

CREATE INDEX worker_queue_ready ON worker_queue (tag)
    WHERE ready = 1 AND session_id IS NULL AND visible_at_ms = 0;
CREATE INDEX worker_queue_missing_handler ON worker_queue (missing_handler)
    WHERE ready = 1 AND session_id IS NULL AND visible_at_ms > 0;
CREATE INDEX worker_queue_session_ready ON worker_queue (ready) WHERE ready = 1 AND session_id IS NOT NULL;
CREATE INDEX worker_queue_session_heads ON worker_queue (session_id) WHERE ready = 1 AND session_id IS NOT NULL;
CREATE INDEX worker_queue_by_session ON worker_queue (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX worker_queue_by_activity ON worker_queue (instance_id, execution_id, activity_id);
CREATE INDEX worker_queue_locked ON worker_queue (locked_until_ms) WHERE lock_token IS NOT NULL AND ready = 0;
CREATE INDEX worker_queue_delayed ON worker_queue (visible_at_ms) WHERE visible_at_ms > 0;

-- Which worker owns a session, and until when.
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    active_at_ms INTEGER NOT NULL,
    -- The provider that leased or renewed it.
    lock_owner INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_lease ON sessions (lease_until_ms);
CREATE INDEX sessions_by_owner ON sessions (owner_id);

-- The key-value store as completed executions left it, and what the current execution wrote over it. A missing value
-- in the delta is a cleared key.
CREATE TABLE kv_base (
    instance_key INTEGER NOT NULL REFERENCES instances (instance_key),
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    last_updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (instance_key, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE kv_delta (
    instance_key INTEGER NOT NULL REFERENCES instances (instance_key),
    key TEXT NOT NULL,
    value TEXT,
    last_updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (instance_key, key)
) STRICT, WITHOUT ROWID;

-- The garbage list: instances that were deleted, and executions that were pruned, whose many rows are removed in slices. No
-- read finds those rows.
CREATE TABLE garbage (
    instance_key INTEGER NOT NULL,
    -- The pruned execution; 0 if the whole instance was deleted.
    execution_id INTEGER NOT NULL CHECK (execution_id >= 0),
    PRIMARY KEY (instance_key, execution_id)
) STRICT, WITHOUT ROWID;

-- One row: how many instances exist, also by the status of their current execution, how many executions, how many events.
-- Every transaction that changes one of these numbers writes it here, so that no table need be counted.
CREATE TABLE totals (
    totals_key INTEGER PRIMARY KEY CHECK (totals_key = 1),
    instances INTEGER NOT NULL DEFAULT 0,
    running INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    executions INTEGER NOT NULL DEFAULT 0,
    events INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO totals (totals_key) VALUES (1);

-- Dead letters: damaged worker rows whose instance is not known, kept for repair, and messages whose instance was never
-- started.
CREATE TABLE set_aside (
    set_aside_key INTEGER PRIMARY KEY,
    set_aside_at_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    instance_id TEXT,
    execution_id INTEGER,
    activity_id INTEGER,
    work_item TEXT
) STRICT;
