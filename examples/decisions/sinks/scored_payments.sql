-- Each payment with what is known of its device at that moment, and whether it is allowed.
CREATE SINK scored_payments WITH (topic = 'scored-payments', key = 'device_id') AS
SELECT p.payment_id, p.ts, p.device_id, p.amount, v.payments_1h,
       CASE WHEN p.amount > 1000 OR v.payments_1h > 3 THEN 'deny' ELSE 'allow' END AS decision
FROM payments p LEFT JOIN device_velocity v ON v.device_id = p.device_id;
