-- How a run made its snapshot. The statuses 'dropped' and 'skipped' belong to this format too.
ALTER TABLE run ADD COLUMN strategy TEXT;
