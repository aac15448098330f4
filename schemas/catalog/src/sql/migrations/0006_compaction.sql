-- A compacted checkpoint keeps the place of the last one that it replaces in the order of commits (revision): what tells
-- readers that it is new is the revision that wrote it.
ALTER TABLE checkpoint ADD COLUMN written_revision BIGINT NOT NULL DEFAULT 0;
UPDATE checkpoint SET written_revision = revision;
CREATE INDEX checkpoint_by_written_revision ON checkpoint (written_revision);
CREATE INDEX file_by_checkpoint ON file (checkpoint);

-- What commits removed lately: a reader that has an earlier state removes it too. Kind: checkpoint (by id) or file (by
-- path). What was removed up to meta.removed_revision is not here (any more).
CREATE TABLE removed (
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    removed_at BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX removed_by_revision ON removed (revision);
CREATE INDEX removed_by_time ON removed (removed_at);
