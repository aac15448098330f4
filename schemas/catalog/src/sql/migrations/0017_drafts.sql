-- What a recomputation has saved so far, as JSON: its successor goes on from there.
ALTER TABLE run ADD COLUMN draft TEXT;

-- The newest recomputation of each version is read with every state.
CREATE INDEX run_recomputed ON run (view_name, version, added_revision) WHERE strategy = 'full';
