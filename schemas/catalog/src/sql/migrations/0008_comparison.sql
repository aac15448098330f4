-- What a run read, how many tiers its snapshot has, how much memory its process took, and (as JSON) what a recomputation
-- found when it was compared with the states that incremental runs had kept; the differences are NULL where it told nothing.
-- The strategies 'stream' and 'replay' of a run belong to this format too.
ALTER TABLE run ADD COLUMN bytes_read BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN tiers BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN peak_resident_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN comparison TEXT;
ALTER TABLE run ADD COLUMN differences BIGINT;

-- The newest runs of each version are read with every state: by these, and not from the whole history.
CREATE INDEX run_by_version ON run (view_name, version, added_revision);
CREATE INDEX run_compared ON run (view_name, version, added_revision) WHERE differences IS NOT NULL;
CREATE INDEX run_open ON run (status) WHERE status IN ('requested', 'running');
