-- Each denial of a device that was denied three times within an hour.
CREATE SINK escalations WITH (topic = 'escalations', key = 'device_id') AS
SELECT d.payment_id, d.ts, d.device_id, v.denials_1h, v.decisions_1h
FROM decisions d LEFT JOIN device_denials v ON v.device_id = d.device_id
WHERE d.decision = 'deny' AND v.denials_1h >= 3;
