-- One plain SELECT. Each aggregate is kept for every window: columns txns_1h, txns_7d, txns_90d, amount_1h and so on.
CREATE VIEW device_velocity WITH (windows = '1h, 7d, 90d', every = '1h') AS
SELECT device_id,
       count(*) AS txns,
       sum(amount) AS amount,
       max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen
FROM transactions
WHERE status = 'ok'
GROUP BY device_id;
