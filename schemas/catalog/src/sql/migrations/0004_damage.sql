-- Named files that somebody found missing or damaged.
CREATE TABLE damage (
    path     TEXT   NOT NULL PRIMARY KEY,
    error    TEXT   NOT NULL,
    found_by TEXT   NOT NULL,
    found_at BIGINT NOT NULL
);

-- The last record before each partition's committed position: a log that has another one there is another log.
CREATE TABLE mark (
    stream           TEXT   NOT NULL,
    partition        BIGINT NOT NULL,
    record_offset    BIGINT NOT NULL,
    record_timestamp BIGINT NOT NULL,
    checksum         BIGINT NOT NULL,
    PRIMARY KEY (stream, partition)
);
