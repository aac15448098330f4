-- How much does a device pay?
CREATE VIEW device_velocity WITH (windows = '1h', every = '1h') AS
SELECT device_id, count(*) AS payments, sum(amount) AS amount FROM payments GROUP BY device_id;
