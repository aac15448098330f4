-- A state is read on top of an earlier one whose last commit is still there.
CREATE INDEX commits_by_revision ON commits (revision);
