#!/usr/bin/env python3
"""Computes aggregates per key over windows that end now, from Parquet files, with Polars.

    polars_query.py question.json

The question file has: tables (name to glob), table, key, time, from_us (of the longest window), columns (alias, aggregate, column,
from_us), answer (a Parquet file to write, or null). POLARS_MAX_THREADS sets the threads. Prints the seconds that the query itself took
and the number of rows in its answer.
"""

import json
import sys
import time

import polars as pl

AGGREGATES = {
    "sum": pl.Expr.sum,
    "min": pl.Expr.min,
    "max": pl.Expr.max,
    "count_distinct": lambda values: values.drop_nulls().n_unique(),
}


def main(path):
    with open(path, encoding="utf-8") as file:
        question = json.load(file)
    at = pl.col(question["time"])

    def since(micros):
        return at >= pl.lit(micros).cast(pl.Datetime("us", "UTC"))

    def aggregated(column):
        within = since(column["from_us"])
        if column["aggregate"] == "count":
            return within.sum().cast(pl.Int64).alias(column["alias"])
        value = AGGREGATES[column["aggregate"]](pl.col(column["column"]).filter(within))
        return value.alias(column["alias"])

    # The sum over no rows is NULL in SQL and 0 in Polars.
    sums = [column for column in question["columns"] if column["aggregate"] == "sum"]
    some = {column["from_us"]: f"any_{column['from_us']}" for column in sums}
    helpers = [since(micros).any().alias(name) for micros, name in some.items()]
    as_sql = [pl.when(some[column["from_us"]]).then(column["alias"]).alias(column["alias"]) for column in sums]

    began = time.perf_counter()
    answer = (
        pl.scan_parquet(question["tables"][question["table"]])
        .filter(since(question["from_us"]))
        .group_by(question["key"])
        .agg([aggregated(column) for column in question["columns"]] + helpers)
        .with_columns(as_sql)
        .drop(list(some.values()))
        .collect(engine="streaming")
    )
    seconds = time.perf_counter() - began
    if question["answer"]:
        answer.write_parquet(question["answer"])
    json.dump({"seconds": seconds, "rows": answer.height}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
