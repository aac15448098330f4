#!/usr/bin/env python3
"""Scores the events of a stream as a sink does, with DuckDB.

    backtest.py folder

The folder has events.ndjson, the records of the log (partition, offset, received, id, ts, k, u, x, amount); times are
microseconds, and a record without ts is a dead letter. Prints the scored events for each way to ask.
"""

import decimal
import json
import sys

import duckdb

from training import answers

COLUMNS = {"partition": "INTEGER", "offset": "BIGINT", "received": "BIGINT", "id": "VARCHAR", "ts": "BIGINT", "k": "VARCHAR", "u": "BIGINT",
           "x": "BIGINT", "amount": "DECIMAL(18,2)"}

# The order in which events become known, and for which time the windows of an event are read.
WAYS = {
    "event": ('ts, "partition", "offset"', "ts"),
    "log by events": ('clock, "partition", "offset"', "newest"),
    "log by wall": ('clock, "partition", "offset"', "clock"),
}

SCORED = """
    WITH accepted AS (
        SELECT *, max(received) OVER so_far AS clock, max(ts) OVER so_far AS newest
        FROM (SELECT *, row_number() OVER (PARTITION BY "partition", id ORDER BY "offset") AS copy FROM events WHERE ts IS NOT NULL)
        WHERE copy = 1
        WINDOW so_far AS (PARTITION BY "partition" ORDER BY "offset")
    ), placed AS (
        SELECT *, row_number() OVER (ORDER BY {order}) AS place, {time} AS t FROM accepted
    ), of_all AS (
        SELECT place, count(*) OVER (ORDER BY place ROWS {before}) AS events,
               CASE WHEN k IS NOT NULL THEN max(ts) FILTER (x <> 7) OVER (PARTITION BY k ORDER BY place ROWS {before}) END AS last
        FROM placed
    ), by_k AS (
        SELECT r.place, count(*) AS n_1h, sum(e.x) AS total_1h, sum(e.amount) AS amount_1h, max(e.x) AS most_1h, count(DISTINCT e.u) AS users_1h
        FROM placed r JOIN placed e ON e.k = r.k AND e.place {is_before} r.place AND e.ts >= floor_to(r.t - $hour, $minute) WHERE e.x <> 7
        GROUP BY r.place
    ), by_u AS (
        SELECT r.place, count(*) AS of_user_1h, count(DISTINCT e.k) AS keys_1h,
               count(*) FILTER (e.ts >= floor_to(r.t - 10 * $minute, $hop)) AS of_user_10m,
               max(e.amount) FILTER (e.ts >= floor_to(r.t - 10 * $minute, $hop)) AS largest_10m
        FROM placed r JOIN placed e ON e.u = r.u AND e.place {is_before} r.place AND e.ts >= floor_to(r.t - $hour, $minute)
        GROUP BY r.place
    )
    SELECT "partition", "offset", ts AS time, id, k, coalesce(n_1h, 0) AS n_1h, total_1h, amount_1h, most_1h, coalesce(users_1h, 0) AS users_1h, last,
           (SELECT count(*) FROM placed e WHERE e.k = r.k AND e.x <> 7 AND e.place {is_before} r.place
            AND e.ts >= floor_to(r.t - $hour, $hop) AND e.ts < floor_to(r.t - 10 * $minute, $hop)) AS earlier,
           coalesce(of_user_10m, 0) AS of_user_10m, coalesce(of_user_1h, 0) AS of_user_1h, coalesce(keys_1h, 0) AS keys_1h, largest_10m, events,
           CASE WHEN amount > 90 AND coalesce(n_1h, 0) > 10 THEN 'deny'
                WHEN coalesce(users_1h, 0) > 4 AND coalesce(of_user_10m, 0) > 4 THEN 'review' ELSE 'allow' END AS decision
    FROM placed r JOIN of_all USING (place) LEFT JOIN by_k USING (place) LEFT JOIN by_u USING (place) WHERE x <> 5
"""


def main(folder):
    database = duckdb.connect()
    database.execute(f"CREATE TABLE events AS SELECT * FROM read_json('{folder}/events.ndjson', format = 'newline_delimited', columns = {COLUMNS})")
    database.execute("CREATE MACRO floor_to(time, hop) AS (time - ((time % hop) + hop) % hop)")
    found = {}
    for exclusive in [False, True]:
        for known, (order, time) in WAYS.items():
            before = f"BETWEEN UNBOUNDED PRECEDING AND {'1 PRECEDING' if exclusive else 'CURRENT ROW'}"
            sql = SCORED.format(order=order, time=time, before=before, is_before="<" if exclusive else "<=")
            found[f"{'exclusive' if exclusive else 'inclusive'} {known}"] = answers(database, sql)
    json.dump(found, sys.stdout, default=amount)


def amount(value):
    """Decimals are texts, as in the answers."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"found {value!r}")


if __name__ == "__main__":
    main(sys.argv[1])
