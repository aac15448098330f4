-- One payment was tried.
CREATE STREAM payments (
  payment_id TEXT NOT NULL,
  ts         TIMESTAMPTZ NOT NULL,
  device_id  TEXT NOT NULL,
  amount     DECIMAL(18,2) NOT NULL
) WITH (topic = 'payments', event_time = 'ts', id = 'payment_id', key = 'device_id');
