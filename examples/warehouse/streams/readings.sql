-- One sensor of a rack reported its temperature, in degrees Celsius.
CREATE STREAM readings (
  reading_id  TEXT NOT NULL,
  ts          TIMESTAMPTZ NOT NULL,
  rack_id     TEXT NOT NULL,
  temperature DECIMAL(5,1) NOT NULL
) WITH (topic = 'readings', format = 'json', event_time = 'ts', id = 'reading_id', dedup_within = '10m', key = 'rack_id');
