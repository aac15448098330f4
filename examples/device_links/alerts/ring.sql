-- A record when the users of a device log in from three others within 7 days, and another when they no longer do.
CREATE ALERT ring WITH (topic = 'rings', resolve = true) AS
SELECT device_id, linked_devices_7d, users_7d FROM device_links WHERE linked_devices_7d >= 3;
