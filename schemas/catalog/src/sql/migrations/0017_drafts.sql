-- What a recomputation has saved so far, as JSON: its successor goes on from there.
ALTER TABLE run ADD COLUMN draft TEXT;
