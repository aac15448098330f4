-- One payment was tried; status is 'ok' or 'declined'.
CREATE STREAM transactions (
  event_id  TEXT NOT NULL,
  ts        TIMESTAMPTZ NOT NULL,
  user_id   TEXT NOT NULL,
  device_id TEXT NOT NULL,
  ip        TEXT NOT NULL,
  amount    DECIMAL(18,2) NOT NULL,
  currency  TEXT NOT NULL,
  status    TEXT NOT NULL
) WITH (topic = 'transactions', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'device_id');
