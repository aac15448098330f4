-- Up to this revision, transitions of alerts may be gone: who followed them from an earlier place is to begin again.
ALTER TABLE meta ADD COLUMN alerts_forgotten BIGINT NOT NULL DEFAULT 0;
-- What the process that runs an alert says of it.
CREATE TABLE alert_runner (
    alert     TEXT   NOT NULL,
    version   BIGINT NOT NULL,
    owner     TEXT   NOT NULL,
    -- When it last finished a round, and the time for which it looked then.
    looked_at BIGINT,
    at        BIGINT,
    -- Why it looks at nothing.
    waits     TEXT,
    PRIMARY KEY (alert)
);
