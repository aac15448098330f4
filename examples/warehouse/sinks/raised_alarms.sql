-- An alarm for each hot reading that follows on another one within 15 seconds, with the heat of the hottest of them.
CREATE SINK raised_alarms WITH (topic = 'alarms', key = 'rack_id', features = 'exclusive') AS
SELECT r.reading_id, r.ts, r.rack_id, greatest(r.temperature, h.hottest_15s) AS heat
FROM readings r LEFT JOIN rack_heat h ON h.rack_id = r.rack_id
WHERE r.temperature > 100 AND h.hot_15s >= 1;
