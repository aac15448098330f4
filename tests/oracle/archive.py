#!/usr/bin/env python3
"""Reads the archive or the dead letters of a stream as they stand, with DuckDB, pyarrow and Polars.

    archive.py folder columns

The columns are separated by commas. Prints the rows that each program finds, as texts in their order, and the ids of each
column in all files.
"""

import json
import pathlib
import sys

import duckdb
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet


def main(folder, columns):
    files = sorted(str(path) for path in pathlib.Path(folder).rglob("*.parquet"))
    quoted = ", ".join(f'"{name}"' for name in columns)
    with_duckdb = duckdb.sql(f"SELECT {quoted} FROM read_parquet('{folder}/**/*.parquet', union_by_name = true)").fetchall()
    schema = pyarrow.unify_schemas([pyarrow.parquet.read_schema(file) for file in files])
    table = pyarrow.dataset.dataset(folder, format="parquet", schema=schema).to_table(columns=columns)
    with_pyarrow = list(zip(*(table.column(name).to_pylist() for name in columns)))
    with_polars = polars.concat([polars.read_parquet(file) for file in files], how="diagonal").select(columns).rows()
    ids = {}
    for file in files:
        for field in pyarrow.parquet.read_schema(file):
            ids.setdefault(field.name, set()).add((field.metadata or {}).get(b"PARQUET:field_id", b"").decode())
    found = {"duckdb": with_duckdb, "pyarrow": with_pyarrow, "polars": with_polars}
    texts = {name: sorted(" ".join("NULL" if value is None else str(value) for value in row) for row in rows) for name, rows in found.items()}
    json.dump({"files": len(files), "rows": texts, "ids": {name: sorted(found) for name, found in ids.items()}}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","))
