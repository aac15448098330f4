#!/usr/bin/env python3
"""Joins the rows of a spine with events by time, with DuckDB.

    training.py folder

The folder has events.ndjson (stream, partition, offset, time, clock, k, u, x) and spine.ndjson (id, k, u, t); times are
microseconds. Prints the rows for each way to ask, in their order.
"""

import datetime
import json
import sys

import duckdb

MINUTE = 60_000_000
HOUR = 60 * MINUTE

ROWS = """
    WITH seen AS (
        SELECT r.id, r.t, e.* FROM spine r JOIN events e ON e.time {before} r.t AND {arrived}
    ), by_key AS (
        SELECT id, count(*) FILTER (time >= floor_to(t - $hour, $minute)) AS n_1h, sum(x) FILTER (time >= floor_to(t - $hour, $minute)) AS total_1h,
               count(*) FILTER (time >= floor_to(t - $hour, $hop) AND time < floor_to(t - 10 * $minute, $hop)) AS earlier
        FROM (SELECT seen.* FROM seen JOIN spine r USING (id) WHERE seen.k = r.k AND stream = 's' AND x <> 7) GROUP BY id
    ), of_both AS (
        SELECT id, count(*) FILTER (time >= floor_to(t - 10 * $minute, $hop)) AS n_10m, count(*) FILTER (time >= floor_to(t - $hour, $minute)) AS of_both_n_1h
        FROM (SELECT seen.* FROM seen JOIN spine r USING (id) WHERE seen.k = r.k) GROUP BY id
    ), by_pair AS (
        SELECT id, list(x ORDER BY time, "partition", "offset") AS all_x, max(x) AS most
        FROM (SELECT seen.* FROM seen JOIN spine r USING (id) WHERE seen.k = r.k AND seen.u = r.u AND stream = 's') GROUP BY id
    ), everything AS (
        SELECT id, count(*) AS events, count(DISTINCT u) AS users FROM seen WHERE stream = 'o' GROUP BY id
    ), links AS (
        SELECT a.id, count(DISTINCT b.x) AS linked,
               count(*) FILTER (a.time >= floor_to(a.t - $hour, $minute) AND b.time >= floor_to(a.t - 10 * $minute, $hop)) AS recent
        FROM seen a JOIN seen b ON a.id = b.id AND a.u = b.u AND a.x = b.x JOIN spine r ON r.id = a.id AND r.k = a.k
        WHERE a.stream = 's' AND b.stream = 'o' GROUP BY a.id
    ), last AS (
        SELECT r.id, l.newest AS last FROM spine r ASOF LEFT JOIN (
            SELECT k, time, greatest(time, {place}) AS place, max(time) OVER (PARTITION BY k ORDER BY greatest(time, {place})) AS newest
            FROM events WHERE stream = 's' AND x <> 7
        ) l ON r.k = l.k AND r.t {after} l.place
    )
    SELECT r.id, r.k, coalesce(n_1h, 0) AS by_key_n_1h, total_1h, coalesce(earlier, 0) AS earlier, coalesce(n_10m, 0) AS n_10m,
           coalesce(of_both_n_1h, 0) AS of_both_n_1h, all_x, most, coalesce(events, 0) AS events, coalesce(users, 0) AS users,
           coalesce(linked, 0) AS linked, coalesce(recent, 0) AS recent, last
    FROM spine r LEFT JOIN by_key USING (id) LEFT JOIN of_both USING (id) LEFT JOIN by_pair USING (id) LEFT JOIN everything USING (id)
         LEFT JOIN links USING (id) LEFT JOIN last USING (id) ORDER BY r.id
"""


def main(folder):
    database = duckdb.connect()
    for table in ["events", "spine"]:
        database.execute(f"CREATE TABLE {table} AS SELECT * FROM read_json_auto('{folder}/{table}.ndjson', format = 'newline_delimited')")
    database.execute("CREATE MACRO floor_to(time, hop) AS (time - ((time % hop) + hop) % hop)")
    found = {}
    for exclusive in [False, True]:
        for known in ["event", "log"]:
            before, after = ("<", ">") if exclusive else ("<=", ">=")
            arrived, place = (f"e.clock {before} r.t", "clock") if known == "log" else ("true", "time")
            sql = ROWS.format(before=before, after=after, arrived=arrived, place=place)
            found[f"{'exclusive' if exclusive else 'inclusive'} {known}"] = answers(database, sql)
    json.dump(found, sys.stdout)


def answers(database, sql):
    """The rows of a query, as the product writes them."""
    for name, value in [("$hour", HOUR), ("$minute", MINUTE), ("$hop", 10_000_000)]:
        sql = sql.replace(name, str(value))
    relation = database.sql(sql)
    rows = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
    for row in rows:
        row["last"] = None if row["last"] is None else rfc3339(row["last"])
        row["total_1h"] = None if row["total_1h"] is None else int(row["total_1h"])
    return rows


def rfc3339(micros):
    seconds, rest = divmod(micros, 1_000_000)
    text = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{text}{fraction}Z"


if __name__ == "__main__":
    main(sys.argv[1])
