-- How hot the coolest of a rack's alarms was, for the sink critical_alarms.
CREATE VIEW rack_alarms WITH (windows = '30s') AS
SELECT rack_id, min(heat) AS coolest
FROM alarms
GROUP BY rack_id;
