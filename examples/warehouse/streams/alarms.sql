-- The records of the sink raised_alarms, as events. A reading has at most one record, so no id is needed.
CREATE STREAM alarms (
  reading_id TEXT NOT NULL,
  ts         TIMESTAMPTZ NOT NULL,
  rack_id    TEXT NOT NULL,
  heat       DECIMAL(5,1) NOT NULL
) WITH (topic = 'alarms', format = 'json', event_time = 'ts', key = 'rack_id');
