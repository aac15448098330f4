#!/usr/bin/env python3
"""Plain joins over generated graphs, told by DuckDB from the files that were ingested.

    graphs.py task.json

The task names the files of each stream (JSON lines) and SQL texts over tables of the streams' names; prints the rows of each.
"""

import json
import sys

import duckdb

COLUMNS = {"id": "VARCHAR", "ts": "TIMESTAMPTZ", "user_id": "VARCHAR", "device_id": "VARCHAR", "amount": "BIGINT"}


def main(path):
    with open(path, encoding="utf-8") as file:
        task = json.load(file)
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    for stream, source in task["streams"].items():
        db.execute(f"CREATE TABLE {stream} AS SELECT * FROM read_json('{source}', format = 'newline_delimited', columns = {COLUMNS})")
    answers = []
    for sql in task["sql"]:
        found = db.execute(sql)
        names = [column[0] for column in found.description]
        answers.append([dict(zip(names, row)) for row in found.fetchall()])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
