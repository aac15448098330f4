-- How a run made its snapshot. The words 'dropped' and 'skipped' (runs), 'redecoded' (definitions) and 'superseded' (files) belong to
-- this format too.
ALTER TABLE run ADD COLUMN strategy TEXT;
