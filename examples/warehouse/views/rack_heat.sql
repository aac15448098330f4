-- The hot readings of a rack, for the sink raised_alarms: how many there were in 15 seconds, and how hot it was.
CREATE VIEW rack_heat WITH (windows = '15s') AS
SELECT rack_id, count(*) AS hot, max(temperature) AS hottest
FROM readings
WHERE temperature > 100
GROUP BY rack_id;
