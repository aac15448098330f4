-- The catalog's tables. The same text runs on SQLite and PostgreSQL: every column is TEXT or BIGINT.
-- Times are microseconds since 1970-01-01 UTC; vectors and uuids are their text; flags are 0 or 1.
-- The table meta (identity, format, revision, removed_revision) is there before all migrations.

-- Recent commits by their id: a writer whose reply was lost finds its own here.
CREATE TABLE commits (
    id           TEXT   NOT NULL PRIMARY KEY,
    revision     BIGINT NOT NULL,
    committed_at BIGINT NOT NULL
);
CREATE INDEX commits_by_time ON commits (committed_at);

CREATE TABLE definition (
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    version    BIGINT NOT NULL,
    sql        TEXT   NOT NULL,
    status     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (kind, name, version)
);

CREATE TABLE partition (
    stream         TEXT   NOT NULL,
    partition      BIGINT NOT NULL,
    next_offset    BIGINT NOT NULL CHECK (next_offset >= 0),
    log_identity   TEXT   NOT NULL,
    clock          BIGINT,
    max_event_time BIGINT,
    complete_to    BIGINT,
    PRIMARY KEY (stream, partition)
);

CREATE TABLE gap (
    stream       TEXT   NOT NULL,
    partition    BIGINT NOT NULL,
    start_offset BIGINT NOT NULL,
    end_offset   BIGINT NOT NULL,
    reason       TEXT   NOT NULL,
    accepted_at  BIGINT NOT NULL,
    PRIMARY KEY (stream, partition, start_offset),
    CHECK (end_offset >= start_offset)
);

CREATE TABLE checkpoint (
    id           TEXT   NOT NULL PRIMARY KEY,
    worker       TEXT   NOT NULL,
    committed_at BIGINT NOT NULL,
    revision     BIGINT NOT NULL
);
CREATE INDEX checkpoint_by_revision ON checkpoint (revision, id);

CREATE TABLE checkpoint_range (
    checkpoint     TEXT   NOT NULL REFERENCES checkpoint (id) ON DELETE CASCADE,
    stream         TEXT   NOT NULL,
    partition      BIGINT NOT NULL,
    start_offset   BIGINT NOT NULL,
    end_offset     BIGINT NOT NULL,
    archived       BIGINT NOT NULL,
    duplicate      BIGINT NOT NULL,
    dead_lettered  BIGINT NOT NULL,
    absent         BIGINT NOT NULL,
    clock          BIGINT,
    max_event_time BIGINT,
    complete_to    BIGINT,
    PRIMARY KEY (checkpoint, stream, partition, start_offset),
    CHECK (end_offset >= start_offset)
);

CREATE TABLE file (
    path           TEXT   NOT NULL PRIMARY KEY,
    kind           TEXT   NOT NULL,
    checkpoint     TEXT,
    run            TEXT,
    subject        TEXT,
    bytes          BIGINT NOT NULL,
    row_count      BIGINT NOT NULL,
    checksum       BIGINT NOT NULL,
    min_event_time BIGINT,
    max_event_time BIGINT,
    doomed         BIGINT NOT NULL DEFAULT 0,
    -- The revision that wrote or doomed it last.
    revision       BIGINT NOT NULL
);
CREATE INDEX file_by_revision ON file (revision);
CREATE INDEX file_doomed ON file (path) WHERE doomed = 1;

CREATE TABLE snapshot (
    view_name    TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    run          TEXT   NOT NULL,
    cut          TEXT   NOT NULL,
    manifest     TEXT   NOT NULL,
    published_at BIGINT NOT NULL,
    PRIMARY KEY (view_name, version)
);

CREATE TABLE run (
    id                TEXT   NOT NULL PRIMARY KEY,
    -- The revision that first stored the run: the order of the history.
    added_revision    BIGINT NOT NULL,
    view_name         TEXT   NOT NULL,
    version           BIGINT NOT NULL,
    status            TEXT   NOT NULL,
    scheduled_for     BIGINT,
    attempt           BIGINT NOT NULL,
    started_at        BIGINT,
    ended_at          BIGINT,
    cut               TEXT,
    events_read       BIGINT NOT NULL,
    rows_written      BIGINT NOT NULL,
    bytes_written     BIGINT NOT NULL,
    peak_memory_bytes BIGINT NOT NULL,
    error             TEXT
);
CREATE INDEX run_by_view ON run (view_name, added_revision);

CREATE TABLE lease (
    name       TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    pin        TEXT
);

CREATE TABLE ingest (
    stream       TEXT   NOT NULL,
    fingerprint  TEXT   NOT NULL,
    records_done BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (stream, fingerprint)
);
