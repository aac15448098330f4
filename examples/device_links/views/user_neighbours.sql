-- Who else logged in from a device that this user logged in from? A stream joined with itself.
CREATE VIEW user_neighbours WITH (windows = '30d', every = '3h') AS
SELECT mine.user_id,
       array_agg(DISTINCT theirs.user_id ORDER BY theirs.user_id) AS neighbours
FROM login mine JOIN login theirs ON mine.device_id = theirs.device_id
WHERE theirs.user_id <> mine.user_id
GROUP BY mine.user_id;
