-- How often is a device denied?
CREATE VIEW device_denials WITH (windows = '1h', every = '1h') AS
SELECT device_id,
       count(*)                                  AS decisions,
       count(*) FILTER (WHERE decision = 'deny') AS denials
FROM decisions GROUP BY device_id;
