-- The records of the sink scored_payments, as events. A payment has one record, so no id is needed.
CREATE STREAM decisions (
  payment_id TEXT NOT NULL,
  ts         TIMESTAMPTZ NOT NULL,
  device_id  TEXT NOT NULL,
  decision   TEXT NOT NULL
) WITH (topic = 'scored-payments', event_time = 'ts', key = 'device_id');
