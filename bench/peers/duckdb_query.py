#!/usr/bin/env python3
"""Answers one SQL query over Parquet files with DuckDB.

    duckdb_query.py question.json

The question file has: tables (name to glob), sql, threads, memory_limit, temp_directory, answer (a Parquet file to write, or null).
Prints the seconds that the query itself took and the number of rows in its answer.
"""

import json
import sys
import time

import duckdb


def main(path):
    with open(path, encoding="utf-8") as file:
        question = json.load(file)
    settings = {name: question[name] for name in ("threads", "memory_limit", "temp_directory")}
    db = duckdb.connect(config={**settings, "preserve_insertion_order": False})
    db.execute("SET TimeZone = 'UTC'")
    for table, files in question["tables"].items():
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}')")
    began = time.perf_counter()
    db.execute(f"CREATE TABLE answer AS {question['sql']}")
    seconds = time.perf_counter() - began
    rows = db.execute("SELECT count(*) FROM answer").fetchone()[0]
    if question["answer"]:
        db.execute(f"COPY answer TO '{question['answer']}' (FORMAT parquet)")
    json.dump({"seconds": seconds, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
