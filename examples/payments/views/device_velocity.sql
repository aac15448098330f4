-- How fast does a device pay, by how many people, and is it declined more often than it used to be?
CREATE VIEW device_velocity WITH (windows = '1h, 7d, 90d', every = '1h') AS
SELECT device_id,
       count(*)                                    AS txns,
       sum(amount)                                 AS amount,
       count(*) FILTER (WHERE status = 'declined') AS declined,
       count(DISTINCT user_id)                     AS users,
       max(ts)     FILTER (WHERE within(ts, 'all')) AS last_seen,
       count(*)    FILTER (WHERE within(ts, '31d', '1d')) AS txns_before,
       count(*)    FILTER (WHERE status = 'ok' AND within(ts, 'all')) AS ok_ever,
       sum(amount) FILTER (WHERE status = 'ok' AND within(ts, 'all')) AS ok_amount_ever,
       -- The chance of this hour's declined payments or more, at the rate of the 30 days before (one in twenty where little is known).
       poisson_sf(
         count(*) FILTER (WHERE status = 'declined' AND within(ts, '1h')),
         count(*) FILTER (WHERE within(ts, '1h'))
           * (1.0 + count(*) FILTER (WHERE status = 'declined' AND within(ts, '30d', '1h')))
           / (20.0 + count(*) FILTER (WHERE within(ts, '30d', '1h')))
       ) AS decline_chance
FROM transactions
GROUP BY device_id;
