-- How many other devices do the users who opened an account on this one log in from? Kept as liveness edges.
CREATE VIEW device_links WITH (windows = '7d, 30d', every = '3h', max_degree = 10000) AS
SELECT c.device_id,
       count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS linked_devices,
       count(DISTINCT c.user_id) AS users,
       count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id AND within(c.ts, '365d') AND within(l.ts, '30d')) AS linked_to_old_accounts
FROM create_account c JOIN login l ON c.user_id = l.user_id
GROUP BY c.device_id;
