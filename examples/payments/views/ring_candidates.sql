-- How many accounts were opened on one device, and from how many addresses?
CREATE VIEW ring_candidates WITH (windows = '1d, 30d', every = '1h') AS
SELECT device_id,
       count(DISTINCT user_id) AS accounts,
       count(DISTINCT ip)      AS addresses,
       min(ts) FILTER (WHERE within(ts, 'all')) AS first_opened,
       max(ts) FILTER (WHERE within(ts, 'all')) AS last_opened
FROM create_account
GROUP BY device_id;
