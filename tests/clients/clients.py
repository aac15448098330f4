"""The Python clients of `run`: psycopg 3, asyncpg, SQLAlchemy, DuckDB's ATTACH and ADBC. PORT, PROJECT and BASESTREAM
name the server."""

import asyncio
import datetime
import decimal
import json
import os
import subprocess
import time
import uuid
from pathlib import Path

PORT = os.environ["PORT"]
WHERE = f"host=127.0.0.1 port={PORT} dbname=basestream user=me"
URL = f"postgresql://me@127.0.0.1:{PORT}/basestream"
UTC = datetime.timezone.utc


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: expected {expected!r}, found {found!r}")


def basestream(*arguments, text=None):
    subprocess.run([os.environ["BASESTREAM"], *arguments], cwd=os.environ["PROJECT"], input=text, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def psycopg_3():
    import psycopg
    from psycopg.types.json import Jsonb

    with psycopg.connect(WHERE, autocommit=True) as connection:
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            row = cursor.execute("SELECT orders, amount, last_order FROM orders_by_customer WHERE customer_id = %s", ["c1"]).fetchone()
            equal("psycopg", row, (10, decimal.Decimal("45.10"), datetime.datetime(2026, 3, 1, 15, 1, tzinfo=UTC)))
            many = cursor.execute("SELECT customer_id FROM orders_by_customer WHERE customer_id = ANY(%s) ORDER BY 1", [["c1", "c2", "none"]]).fetchall()
            equal("psycopg ANY", many, [("c1",), ("c2",)])
            full = cursor.execute("SELECT unit, day, tags, raw, ok, score FROM orders WHERE order_id = %s", ["o1"]).fetchone()
            equal("psycopg types", full, (uuid.UUID(int=1), datetime.date(2026, 2, 2), ["x", "y z"], b"\x00\xff", False, 0.125))
            decoded = cursor.execute("SELECT '{\"a\": [1]}'::json, %s::jsonb", [Jsonb({"b": 2})]).fetchone()
            equal("psycopg json", decoded, ({"a": [1]}, {"b": 2}))
            for column, value in [("unit", uuid.UUID(int=1)), ("day", datetime.date(2026, 2, 2)), ("amount", decimal.Decimal("0.01")), ("raw", b"\x00\xff"),
                                  ("ok", False), ("score", 0.125), ("ts", datetime.datetime(2026, 3, 1, 0, 1, tzinfo=UTC)), ("order_id", "o1")]:
                for format in ("%s", "%b", "%t"):
                    found = cursor.execute(f"SELECT count(*) FROM orders WHERE order_id = 'o1' AND {column} = {format}", [value]).fetchone()
                    equal(f"psycopg {column} {format}", found, (1,))
            at, day = datetime.datetime(2026, 3, 1, tzinfo=UTC), datetime.timedelta(days=1)
            for sql, values, expected in [("orders * %s", [decimal.Decimal("1.5")], 15), ("orders * %s", [1.5], 15), ("last_order < %s + interval '1 day'", [at], True),
                                          ("last_order - %s", [day], datetime.datetime(2026, 2, 28, 15, 1, tzinfo=UTC)), ("last_order > %s - %s", [at, day], True)]:
                found = cursor.execute(f"SELECT {sql} FROM orders_by_customer WHERE customer_id = 'c1'", values).fetchone()
                equal(f"psycopg {sql}", found, (expected,))
        cursor = connection.cursor()
        rows = 0
        for _ in cursor.stream("SELECT * FROM orders"):
            rows += 1
        equal("psycopg stream", rows, 1000)
        equal("psycopg set_config", connection.execute("SELECT set_config(%s, %s, %s)", ["search_path", "system", False]).fetchone(), ("system",))
        equal("psycopg search_path", connection.execute("SELECT current_schema()").fetchone(), ("system",))
        equal("psycopg search_path", connection.execute("SELECT count(*) >= 2 FROM views").fetchone(), (True,))
        connection.execute("RESET search_path")
        with connection.transaction(), connection.cursor("scrolled") as scrolled:
            scrolled.execute("SELECT order_id FROM orders ORDER BY order_id")
            scrolled.scroll(990)
            equal("psycopg scroll", len(scrolled.fetchall()), 10)
        with cursor.copy("COPY (SELECT customer_id, orders FROM orders_by_customer ORDER BY customer_id LIMIT 2) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["text", "int8"])
            equal("psycopg COPY", list(copy.rows()), [("c0", 10), ("c1", 10)])
        with connection.pipeline():
            cursors = [connection.execute("SELECT orders FROM orders_by_customer WHERE customer_id = %s", [f"c{n}"]) for n in range(5)]
        equal("psycopg pipeline", [cursor.fetchone() for cursor in cursors], [(10,)] * 5)
        try:
            connection.execute("INSERT INTO orders_by_customer VALUES ('x')")
        except psycopg.errors.ReadOnlySqlTransaction:
            pass
        else:
            raise SystemExit("psycopg: an INSERT was not refused")

    with psycopg.connect(f"{WHERE} options='-c TimeZone=Asia/Tokyo'", autocommit=True) as connection:
        row = connection.execute("SELECT date_trunc('day', last_order), last_order::date FROM orders_by_customer WHERE last_order > %t AND customer_id = 'c1'", ["2026-03-02"]).fetchone()
        equal("psycopg TimeZone", row, (datetime.datetime(2026, 3, 1, 15, tzinfo=UTC), datetime.date(2026, 3, 2)))

    # Named cursors are read in parts.
    with psycopg.connect(WHERE) as connection:
        amounts = [(f"o{100 * n + 1}", decimal.Decimal(n) + decimal.Decimal("0.01")) for n in range(10)]
        for binary in (False, True):
            with connection.cursor("its rows") as cursor:
                cursor.execute("SELECT order_id, amount FROM orders WHERE customer_id = %s ORDER BY amount", ["c1"], binary=binary)
                equal("psycopg named cursor", [column.name for column in cursor.description], ["order_id", "amount"])
                equal("psycopg named cursor", (cursor.fetchone(), cursor.fetchmany(4), cursor.fetchall(), cursor.fetchone()),
                      (amounts[0], amounts[1:5], amounts[5:], None))
            with connection.cursor("its rows") as cursor:
                cursor.itersize = 3
                equal("psycopg named cursor", list(cursor.execute("SELECT order_id, amount FROM orders WHERE customer_id = 'c1' ORDER BY amount", binary=binary)), amounts)
        with connection.cursor("never executed"):
            pass

    # A prepared statement sees what came after it, also over a new snapshot.
    with psycopg.connect(WHERE, autocommit=True, prepare_threshold=0) as connection:
        ask = lambda: connection.execute("SELECT orders FROM orders_by_customer WHERE customer_id = %s", ["new"]).fetchone()
        equal("psycopg prepared", ask(), None)
        for expected in (1, 2):
            order = {"order_id": f"new{expected}", "ts": "2026-03-01T20:00:00Z", "customer_id": "new", "amount": "1.00"}
            basestream("ingest", "orders", "-", text=json.dumps(order) + "\n")
            basestream("batch", "run", "orders_by_customer")
            for _ in range(300):
                if ask() == (expected,):
                    break
                time.sleep(0.1)
            equal("psycopg prepared", ask(), (expected,))
        with connection.transaction():
            equal("psycopg transaction", ask(), (2,))


async def asyncpg_():
    import asyncpg

    connection = await asyncpg.connect(host="127.0.0.1", port=int(PORT), user="me", database="basestream")
    rows = await connection.fetch("SELECT customer_id, orders FROM orders_by_customer WHERE customer_id = ANY($1) ORDER BY 1", ["c1", "c2"])
    equal("asyncpg ANY", [tuple(row) for row in rows], [("c1", 10), ("c2", 10)])
    row = await connection.fetchrow("SELECT unit, day, tags, raw, ok, score, amount, ts FROM orders WHERE unit = $1 AND order_id = $2", uuid.UUID(int=1), "o1")
    equal("asyncpg types", tuple(row), (uuid.UUID(int=1), datetime.date(2026, 2, 2), ["x", "y z"], b"\x00\xff", False, 0.125, decimal.Decimal("0.01"), datetime.datetime(2026, 3, 1, 0, 1, tzinfo=UTC)))
    equal("asyncpg numeric", await connection.fetchval("SELECT count(*) FROM orders WHERE amount = $1", decimal.Decimal("0.01")), 1)
    at, unit = datetime.datetime(2026, 3, 1, 0, 1, tzinfo=UTC), uuid.UUID(int=1)
    # It asks the catalog for the items of an array that it does not know yet.
    for array, items in [("SMALLINT", [1, None]), ("INT", [-7, 8]), ("BIGINT", [2**53 + 1, None]), ("DOUBLE PRECISION", [0.125, None]), ("BOOLEAN", [True, None]),
                         ("TEXT", ["x", "y z", None]), ("TIMESTAMPTZ", [at, None]), ("DATE", [datetime.date(2026, 2, 2)]), ("BYTEA", [b"\x00\xff"]),
                         ("NUMERIC(18,2)", [decimal.Decimal("0.01"), None]), ("INT", [])]:
        equal(f"asyncpg {array}[]", await connection.fetchval(f"SELECT $1::{array}[]", items), items)
    equal("asyncpg UUID[]", await connection.fetchval("SELECT $1::uuid[]", [unit, None]), [unit, None])
    for column, value in [("unit", unit), ("day", datetime.date(2026, 2, 2)), ("amount", decimal.Decimal("0.01")), ("raw", b"\x00\xff"), ("ok", False), ("score", 0.125),
                          ("ts", at), ("order_id", "o1"), ("CAST(score * 8 AS SMALLINT)", 1), ("CAST(score * 8 AS INT)", 1), ("CAST(score * 8 AS BIGINT)", 1)]:
        found = await connection.fetchval(f"SELECT count(*) FROM orders WHERE order_id = 'o1' AND {column} = ANY($1)", [value])
        equal(f"asyncpg {column} = ANY", found, 1)
    lists = await connection.fetchrow("SELECT array_agg(score ORDER BY ts), array_agg(amount ORDER BY ts), array_agg(ts ORDER BY ts) FROM orders WHERE order_id IN ('o1', 'o2')")
    equal("asyncpg lists", tuple(lists), ([0.125, 0.25], [decimal.Decimal("0.01"), decimal.Decimal("0.02")], [at, at + datetime.timedelta(minutes=1)]))
    async with connection.transaction():
        rows = 0
        async for _ in connection.cursor("SELECT * FROM orders", prefetch=100):
            rows += 1
    equal("asyncpg cursor", rows >= 1000, True)
    try:
        await connection.fetch("SELECT nothing FROM orders")
    except asyncpg.exceptions.UndefinedColumnError:
        pass
    else:
        raise SystemExit("asyncpg: an unknown column was not refused")
    try:
        await asyncio.wait_for(connection.fetch("SELECT count(*) FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17"), 0.3)
    except asyncio.TimeoutError:
        pass
    equal("asyncpg after a cancel", await connection.fetchval("SELECT 1"), 1)
    await connection.reset()
    await connection.close()
    pool = await asyncpg.create_pool(URL, min_size=1, max_size=2)
    for _ in range(3):
        async with pool.acquire() as pooled:
            equal("asyncpg pool", await pooled.fetchval("SELECT orders FROM orders_by_customer WHERE customer_id = $1", "c1"), 10)
    await pool.close()


def sqlalchemy_():
    from sqlalchemy import MetaData, Table, column, create_engine, func, inspect, select, table

    engine = create_engine(f"postgresql+psycopg://me@127.0.0.1:{PORT}/basestream")
    inspector = inspect(engine)
    equal("SQLAlchemy views", {"orders_by_customer", "units"} <= set(inspector.get_view_names()), True)
    equal("SQLAlchemy views", sorted(inspector.get_view_names()), sorted(inspector.get_view_names(schema="public")))
    equal("SQLAlchemy tables", (inspector.get_table_names(), inspector.get_table_names(schema="public")), (["orders"], ["orders"]))
    equal("SQLAlchemy schemas", sorted(inspector.get_schema_names()), ["information_schema", "public", "system"])
    everything = MetaData()
    everything.reflect(engine, views=True)
    equal("SQLAlchemy reflect", {"orders", *inspector.get_view_names()}, set(everything.tables))
    reflected = Table("orders_by_customer", MetaData(), autoload_with=engine)
    typed = lambda found, *names: [(found.c[name].name, found.c[name].type.compile(engine.dialect)) for name in names or found.c.keys()]
    equal("SQLAlchemy autoload", typed(reflected),
          [("customer_id", "TEXT"), ("orders", "BIGINT"), ("amount", "NUMERIC(28, 2)"), ("last_order", "TIMESTAMP WITH TIME ZONE")])
    events = Table("orders", MetaData(), autoload_with=engine)
    equal("SQLAlchemy autoload", typed(events, "unit", "tags", "raw", "ok"),
          [("unit", "UUID"), ("tags", "TEXT[]"), ("raw", "BYTEA"), ("ok", "BOOLEAN")])
    with engine.connect() as connection:
        rows = connection.execute(select(reflected.c.orders, reflected.c.last_order).where(reflected.c.customer_id == "c1")).all()
        equal("SQLAlchemy reflected", [tuple(row) for row in rows], [(10, datetime.datetime(2026, 3, 1, 15, 1, tzinfo=UTC))])
    orders = table("orders_by_customer", column("customer_id"), column("orders"), column("amount"))
    with engine.connect() as connection:
        rows = connection.execute(select(orders.c.orders, orders.c.amount).where(orders.c.customer_id == "c1")).all()
        equal("SQLAlchemy", [tuple(row) for row in rows], [(10, decimal.Decimal("45.10"))])
        rows = connection.execute(select(orders.c.customer_id).where(orders.c.customer_id.in_(["c1", "c2"])).order_by(orders.c.customer_id)).all()
        equal("SQLAlchemy IN", [tuple(row) for row in rows], [("c1",), ("c2",)])
        streamed = connection.execute(select(events.c.order_id), execution_options={"stream_results": True, "max_row_buffer": 100})
        equal("SQLAlchemy stream_results", len(list(streamed)), connection.execute(select(func.count()).select_from(events)).scalar())
        starts = lambda text: connection.execute(select(func.count()).where(orders.c.customer_id.startswith(text, autoescape=True))).scalar()
        equal("SQLAlchemy startswith", (starts("c1"), starts("c_")), (11, 0))


def duckdb_():
    import duckdb

    # The extension comes from PyPI, for this version of DuckDB: `INSTALL postgres` would ask DuckDB's own server.
    [extension] = Path(duckdb.__file__).parents[1].glob("duckdb_ext/extensions/*/*/postgres_scanner.duckdb_extension")
    connection = duckdb.connect()
    connection.load_extension(str(extension))
    connection.execute(f"ATTACH '{WHERE}' AS live (TYPE postgres, READ_ONLY)")
    found = connection.execute("SELECT count(*), sum(orders), sum(amount) FROM live.public.orders_by_customer WHERE customer_id LIKE 'c%'").fetchone()
    equal("DuckDB ATTACH", found, (100, 1000, decimal.Decimal("4995.00")))
    found = connection.execute("SELECT unit, day, tags, raw, ok, score FROM live.public.orders WHERE order_id = 'o1'").fetchone()
    equal("DuckDB types", found[:6], (uuid.UUID(int=1), datetime.date(2026, 2, 2), ["x", "y z"], b"\x00\xff", False, 0.125))
    found = connection.execute("SELECT * FROM postgres_query('live', 'SELECT orders FROM orders_by_customer WHERE customer_id = ''c1''')").fetchone()
    equal("DuckDB postgres_query", found, (10,))
    tables = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'live' UNION SELECT view_name FROM duckdb_views() WHERE database_name = 'live'").fetchall()}
    equal("DuckDB tables", {"orders", "orders_by_customer"} <= tables, True)


def adbc():
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(URL) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT customer_id, orders, last_order FROM orders_by_customer WHERE customer_id LIKE 'c%' ORDER BY customer_id")
        table = cursor.fetch_arrow_table()
        equal("ADBC", (table.num_rows, table.column("orders").to_pylist()[:2]), (100, [10, 10]))
        equal("ADBC types", [str(field.type) for field in table.schema], ["string", "int64", "timestamp[us, tz=UTC]"])
        cursor.execute("SELECT orders FROM orders_by_customer WHERE customer_id = $1", parameters=("c1",))
        equal("ADBC parameter", cursor.fetchall(), [(10,)])
        cursor.execute("SELECT tags, day, raw, ok, score FROM orders WHERE order_id = 'o1'")
        equal("ADBC types", cursor.fetchall(), [(["x", "y z"], datetime.date(2026, 2, 2), b"\x00\xff", False, 0.125)])
        objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        schemas = {schema["db_schema_name"]: schema["db_schema_tables"] for catalog in objects if catalog["catalog_name"] == "basestream" for schema in catalog["catalog_db_schemas"]}
        tables = {table["table_name"]: table for table in schemas["public"]}
        equal("ADBC objects", (tables["orders"]["table_type"], tables["units"]["table_type"]), ("table", "view"))
        equal("ADBC objects", [column["column_name"] for column in tables["units"]["table_columns"]], ["unit", "n"])
        equal("ADBC objects", "runs" in {table["table_name"] for table in schemas["system"]}, True)


if __name__ == "__main__":
    for client in (psycopg_3, lambda: asyncio.run(asyncpg_()), sqlalchemy_, duckdb_, adbc):
        client()
