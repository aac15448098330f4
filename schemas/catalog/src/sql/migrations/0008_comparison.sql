-- What a run read, how many tiers its snapshot has, how much memory its process took, and (as JSON) what a recomputation
-- found when it was compared with the states that incremental runs had kept; the differences are NULL where it told nothing.
-- The strategies 'stream' and 'replay' of a run belong to this format too.
ALTER TABLE run ADD COLUMN bytes_read BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN tiers BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN peak_resident_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN comparison TEXT;
ALTER TABLE run ADD COLUMN differences BIGINT;
