-- The revision that wrote a definition last: who knows an earlier state reads what was written since.
ALTER TABLE definition ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
CREATE INDEX definition_by_revision ON definition (revision);
