-- Dead letters that were appended to the log again: a repeated replay leaves them out.
CREATE TABLE replay (
    stream       TEXT   NOT NULL,
    partition    BIGINT NOT NULL,
    start_offset BIGINT NOT NULL,
    end_offset   BIGINT NOT NULL,
    replayed_at  BIGINT NOT NULL,
    PRIMARY KEY (stream, partition, start_offset),
    CHECK (end_offset > start_offset)
);
