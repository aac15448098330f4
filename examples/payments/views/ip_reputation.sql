-- Who logs in from an address?
CREATE VIEW ip_reputation WITH (windows = '1d, 30d', every = '1h') AS
SELECT ip,
       count(*)                   AS logins,
       count(DISTINCT user_id)    AS users,
       approx_distinct(device_id) AS devices,
       top_k(device_id, 3)        AS busiest_devices
FROM login
GROUP BY ip;
