-- Whether a recomputation lets incremental runs of its version go on, under a lease of its own.
ALTER TABLE run ADD COLUMN beside BIGINT NOT NULL DEFAULT 0;
