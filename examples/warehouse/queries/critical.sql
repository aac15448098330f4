WITH hot AS (
  -- A pattern's condition sees one event, so two readings are compared here, over the hot readings that the view keeps.
  SELECT rack_id, unnest(hot_1d) AS temperature, unnest(hot_at_1d) AS ts FROM racks
),
pairs AS (
  SELECT rack_id, ts AS ended_at, lag(ts) OVER readings AS began_at,
         greatest(temperature, lag(temperature) OVER readings) AS heat
  FROM hot
  WINDOW readings AS (PARTITION BY rack_id ORDER BY ts)
),
alarms AS (
  SELECT * FROM pairs WHERE ended_at - began_at <= INTERVAL '15 seconds'
)
-- The critical alarms: the hottest reading is hotter than that of an alarm at most 30 seconds before.
SELECT second.rack_id, second.ended_at AS at, max(first.heat) AS before, second.heat AS now
FROM alarms first
JOIN alarms second ON second.rack_id = first.rack_id
WHERE second.began_at > first.ended_at
  AND second.ended_at - first.ended_at <= INTERVAL '30 seconds'
  AND second.heat > first.heat
GROUP BY second.rack_id, second.ended_at, second.heat
ORDER BY second.rack_id, second.ended_at
