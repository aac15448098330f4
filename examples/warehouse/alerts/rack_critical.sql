-- A record when an alarm above 110 degrees follows on one below, and another when the last such alarm is a day ago.
CREATE ALERT rack_critical WITH (topic = 'rack-alarms', resolve = true) AS
SELECT rack_id, alarms_1d, hottest_1d FROM racks WHERE is_escalated_1d;
