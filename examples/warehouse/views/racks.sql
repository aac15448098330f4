-- Which racks are too hot? An alarm is two readings above 100 degrees within 15 seconds.
CREATE VIEW racks WITH (windows = '5m, 1d', every = '1m') AS
SELECT rack_id,
       count(*)         AS readings,
       max(temperature) AS hottest,

       -- How many alarms there were. A reading counts in one alarm.
       sequence_count('(?1)(?t<=15)(?1)', ts, temperature > 100) AS alarms,

       -- Two alarms, of which the second began within 30 seconds of the first.
       sequence_match('(?1)(?t<=15)(?1)(?t<=30)(?1)(?t<=15)(?1)', ts, temperature > 100) AS is_repeated,

       -- The same, the first of up to 110 degrees and the second of more.
       sequence_match('(?1)(?t<=15)(?1)(?t<=30)(?2)(?t<=15)(?2)', ts,
                      temperature > 100 AND temperature <= 110, temperature > 110) AS is_escalated,

       -- How far it went from 90 over 100 and 110 to 120 degrees within two minutes.
       window_funnel('2m', ts, temperature > 90, temperature > 100, temperature > 110, temperature > 120) AS steps,

       -- A sensor that is silent for more than 20 seconds was away: how often was it back, and how long was it away?
       session_count(ts, '20s') AS connections,
       longest_gap(ts)          AS silence,

       -- The hot readings themselves, for queries/critical.sql.
       array_agg(temperature ORDER BY ts) FILTER (WHERE temperature > 100) AS hot,
       array_agg(ts ORDER BY ts)          FILTER (WHERE temperature > 100) AS hot_at
FROM readings
GROUP BY rack_id;
