-- The facts of one topic: JSON records, one column for each member that is asked for ('$.<column>' unless a path says otherwise).
CREATE STREAM transactions (
  event_id  TEXT NOT NULL,
  ts        TIMESTAMPTZ NOT NULL OPTIONS (path = '$.created', unit = 'ms'),
  device_id TEXT,
  amount    DECIMAL(18,2) NOT NULL,
  status    TEXT NOT NULL
) WITH (topic = 'payments', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'device_id');
