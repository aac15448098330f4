-- Alerts: how far each version of one is, which keys satisfy its condition, and what began, was repeated and was resolved.
-- They are no part of the catalog's state: nobody reads them who does not ask.
CREATE TABLE alert_progress (
    alert      TEXT   NOT NULL,
    version    BIGINT NOT NULL,
    -- The sequence number of the next transition.
    next_seq   BIGINT NOT NULL,
    -- The first sequence number that may not be in the topic yet.
    published  BIGINT NOT NULL,
    -- What its last transitions were made from: the position of the view's streams, and the time.
    position   TEXT   NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (alert, version)
);
CREATE TABLE open_alert (
    alert        TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    keys         TEXT   NOT NULL,
    since        BIGINT NOT NULL,
    last_put_out BIGINT NOT NULL,
    seq          BIGINT NOT NULL,
    record       TEXT   NOT NULL,
    PRIMARY KEY (alert, version, keys)
);
CREATE TABLE alert_transition (
    alert      TEXT   NOT NULL,
    version    BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    -- The revision of the commit, which orders the transitions of all alerts.
    revision   BIGINT NOT NULL,
    id         TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    keys       TEXT   NOT NULL,
    since      BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    record     TEXT   NOT NULL,
    record_key TEXT,
    PRIMARY KEY (alert, version, seq)
);
CREATE INDEX alert_transition_by_revision ON alert_transition (revision, alert, version, seq);
