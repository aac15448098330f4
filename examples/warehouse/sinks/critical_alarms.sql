-- A critical alarm for each alarm that is hotter than another one of the 30 seconds before.
CREATE SINK critical_alarms WITH (topic = 'critical-alarms', key = 'rack_id', features = 'exclusive') AS
SELECT a.reading_id, a.ts, a.rack_id, a.heat, v.coolest_30s
FROM alarms a LEFT JOIN rack_alarms v ON v.rack_id = a.rack_id
WHERE a.heat > v.coolest_30s;
