-- One account was opened.
CREATE STREAM create_account (
  event_id  TEXT NOT NULL,
  ts        TIMESTAMPTZ NOT NULL,
  user_id   TEXT,
  device_id TEXT
) WITH (topic = 'create_account', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'user_id');
