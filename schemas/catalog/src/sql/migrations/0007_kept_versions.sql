-- Since when a version has its status, and until when a replaced version of a view is kept. The word 'kept' (definitions)
-- belongs to this format too.
ALTER TABLE definition ADD COLUMN since BIGINT NOT NULL DEFAULT 0;
UPDATE definition SET since = created_at;
ALTER TABLE definition ADD COLUMN kept_until BIGINT;
-- 1 for a version from which a user returned to an earlier one.
ALTER TABLE definition ADD COLUMN rolled_back BIGINT NOT NULL DEFAULT 0;
