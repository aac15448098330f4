-- One user logged in, after so many attempts.
CREATE STREAM login (
  event_id  TEXT NOT NULL,
  ts        TIMESTAMPTZ NOT NULL,
  user_id   TEXT,
  device_id TEXT,
  attempts  BIGINT
) WITH (topic = 'login', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'user_id');
