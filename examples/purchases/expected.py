#!/usr/bin/env python3
"""The view `customers`, computed from the file by an independent engine (DuckDB): what basestream's answers are held against.

    pip install duckdb
    python3 expected.py --write                       writes expected.csv.gz and expected_half.csv.gz (the first half of the file)
    python3 expected.py [--rows N] [--as-of T] [--customer C]..    prints the table for the first N orders, at T (RFC 3339)

The rules, as the design states them; nothing here is taken from basestream's code:
- t is the greatest event time of the orders read, or T. An order's event time is its day's midnight, UTC.
- A window W counts what is not earlier than t - W, rounded down to the window's hop; with --as-of, nothing later than T.
- A hop is the largest of 1 s, 10 s, 1 min, 5 min, 1 h, 1 d that is at most W / 60, counted from 1970-01-01.
- A customer with any order has a row. Without an order in a window, its count is 0 and the rest is NULL (empty).
"""

import argparse
import csv
import datetime
import gzip
import io
import pathlib

import duckdb

HERE = pathlib.Path(__file__).resolve().parent
SECOND, MINUTE, HOUR, DAY = 1, 60, 3600, 86400
HOPS = [1 * SECOND, 10 * SECOND, 1 * MINUTE, 5 * MINUTE, 1 * HOUR, 1 * DAY]
WINDOWS = {"7d": 7 * DAY, "30d": 30 * DAY, "90d": 90 * DAY, "365d": 365 * DAY}
AGGREGATES = {"orders": "count(*)", "units": "sum(units)", "revenue": "sum(revenue)", "largest_order": "max(revenue)"}


def main():
    arguments = parse_arguments()
    if arguments.write:
        orders = count_orders()
        write(HERE / "expected.csv.gz", expected(orders, None))
        write(HERE / "expected_half.csv.gz", expected(orders // 2, None))
        return
    header, *rows = expected(arguments.rows, arguments.as_of)
    wanted = [row for row in rows if not arguments.customer or row[0] in arguments.customer]
    print(as_csv([header, *wanted]), end="")


def expected(first_orders, as_of):
    """Header and rows, in the order of customer_id; every value as text, NULL as the empty text."""
    engine = duckdb.connect()
    load(engine, first_orders)
    t = engine.execute("SELECT max(event_time) FROM purchases").fetchone()[0] if as_of is None else seconds(as_of)
    upper_edge = "" if as_of is None else f"WHERE event_time <= {t}"
    table = engine.execute(
        f"""SELECT customer_id, {', '.join(windowed_columns(t))},
                   count(*) AS orders_ever, sum(revenue) AS revenue_ever, max(ordered_on) AS last_ordered_on
            FROM purchases {upper_edge} GROUP BY customer_id ORDER BY customer_id"""
    )
    header = [column[0] for column in table.description]
    return [header, *([("" if value is None else str(value)) for value in row] for row in table.fetchall())]


def windowed_columns(t):
    for name, aggregate in AGGREGATES.items():
        for window, length in WINDOWS.items():
            hop = max(hop for hop in HOPS if hop * 60 <= length)
            left_edge = int((t - length) // hop * hop)
            yield f"{aggregate} FILTER (WHERE event_time >= {left_edge}) AS {name}_{window}"


def load(engine, first_orders):
    """The file's first orders (all by default) with exact decimals, and `event_time` in seconds since 1970."""
    engine.execute(
        f"""CREATE TABLE purchases AS
            SELECT *, epoch(ordered_on::TIMESTAMP)::BIGINT AS event_time
            FROM read_csv('{HERE / "purchases.csv.gz"}', header = true, columns = {{'order_id': 'VARCHAR', 'customer_id': 'VARCHAR',
                'ordered_on': 'DATE', 'units': 'INTEGER', 'revenue': 'DECIMAL(10,2)'}}, parallel = false)
            {'' if first_orders is None else f'LIMIT {first_orders}'}"""
    )


def count_orders():
    with gzip.open(HERE / "purchases.csv.gz", "rt") as lines:
        return sum(1 for _ in lines) - 1


def seconds(time):
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def as_csv(rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write(path, rows):
    """The same bytes at every run: no file name and no time in the gzip header."""
    path.write_bytes(gzip.compress(as_csv(rows).encode(), compresslevel=9, mtime=0))
    print(f"{path.name}: {len(rows) - 1} customers")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write both expected tables beside this file")
    parser.add_argument("--rows", type=int, help="only the first N orders of the file, which is in event order")
    parser.add_argument("--as-of", help="the point in time, RFC 3339 with a zone; default: the greatest event time")
    parser.add_argument("--customer", action="append", help="only this customer (may be repeated)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
