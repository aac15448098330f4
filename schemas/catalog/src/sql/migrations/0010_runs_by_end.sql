-- A state holds the runs of the last minutes: they are found by their end.
CREATE INDEX run_by_end ON run (ended_at);
