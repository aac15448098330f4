-- How often, and after how many attempts, did they log in? Multiplicities matter here: kept as full edges.
CREATE VIEW device_logins WITH (windows = '7d, 30d', every = '3h') AS
SELECT c.device_id,
       count(*)        AS pairs,
       sum(l.attempts) AS attempts,
       max(l.attempts) AS most_attempts
FROM create_account c JOIN login l ON c.user_id = l.user_id
GROUP BY c.device_id;
