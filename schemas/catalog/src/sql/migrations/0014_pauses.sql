-- Which sinks and alerts are paused, and since when.
CREATE TABLE pause (
    kind  TEXT   NOT NULL,
    name  TEXT   NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);
-- Which worker decides where the versions of a sink change in a partition: the last one that took its output over.
CREATE TABLE sink_claim (
    sink      TEXT   NOT NULL,
    stream    TEXT   NOT NULL,
    partition BIGINT NOT NULL,
    claim     TEXT   NOT NULL,
    PRIMARY KEY (sink, stream, partition)
);
-- From which offset of a partition on which version of a sink makes the records, or none because it is paused. No part of
-- the catalog's state: workers read it when they take an output over, and users who ask.
CREATE TABLE sink_switch (
    sink         TEXT   NOT NULL,
    stream       TEXT   NOT NULL,
    partition    BIGINT NOT NULL,
    seq          BIGINT NOT NULL,
    log_identity TEXT   NOT NULL,
    from_offset  BIGINT NOT NULL,
    version      BIGINT NOT NULL,
    paused       BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (sink, stream, partition, seq)
);
