-- Each payment with what is known of its device at that moment, and what to do about it.
CREATE SINK scored_transactions WITH (topic = 'scored-transactions', key = 'device_id', features = 'inclusive') AS
SELECT t.event_id, t.device_id, t.user_id, t.amount,
       v.txns_1h, v.amount_7d, v.users_7d, l.linked_devices_7d,
       CASE WHEN t.amount > 10000                              THEN 'deny'
            WHEN v.txns_1h > 20 OR l.linked_devices_7d >= 5    THEN 'review'
            ELSE 'allow' END AS decision
FROM transactions t
LEFT JOIN device_velocity v ON v.device_id = t.device_id
LEFT JOIN device_links l    ON l.device_id = t.device_id
WHERE t.status = 'ok';
