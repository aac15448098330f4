-- What is normal for a user, and how far from it is the largest payment of the last day?
CREATE VIEW user_profile WITH (windows = '7d, 90d', every = '1h') AS
SELECT user_id,
       count(*)                                       AS txns,
       sum(amount)                                    AS amount,
       sum(amount) FILTER (WHERE status = 'declined') AS declined_amount,
       last_n(amount, 5)                              AS last_amounts,
       count(DISTINCT device_id) FILTER (WHERE within(ts, '90d')) AS devices,
       zscore(
         CAST(max(amount) FILTER (WHERE within(ts, '1d')) AS DOUBLE),
         avg(CAST(amount AS DOUBLE)) FILTER (WHERE within(ts, '90d', '1d')),
         stddev(CAST(amount AS DOUBLE)) FILTER (WHERE within(ts, '90d', '1d'))
       ) AS largest_zscore
FROM transactions
GROUP BY user_id;
