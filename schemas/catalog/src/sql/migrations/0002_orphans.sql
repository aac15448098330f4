-- Files of checkpoints whose names were made before this time, and that no commit has named by then, are the collector's.
ALTER TABLE meta ADD COLUMN orphaned_before BIGINT NOT NULL DEFAULT 0;
