"""The clients of Flight SQL of `run`: ADBC into pyarrow, pandas and Polars, and pyarrow's own client. FLIGHT names the
server, TOKEN is a token that reads one view."""

import datetime
import decimal
import json
import os
import time
import uuid

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import polars
import pyarrow
import pyarrow.flight

URI = f"grpc://127.0.0.1:{os.environ['FLIGHT']}"
TOKEN = os.environ["TOKEN"]
UTC = datetime.timezone.utc
VIEW = "SELECT customer_id, orders, amount, last_order FROM orders_by_customer WHERE customer_id LIKE 'c%' ORDER BY customer_id"


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: expected {expected!r}, found {found!r}")


def refused(what, error, text, ask):
    try:
        ask()
    except error as problem:
        if text not in str(problem):
            raise SystemExit(f"{what}: expected {text!r}, found {problem}")
    else:
        raise SystemExit(f"{what}: was not refused")


def connect(**options):
    return adbc_driver_flightsql.dbapi.connect(URI, options.pop("db_kwargs", {}), autocommit=True, **options)


def adbc():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(VIEW)
        table = cursor.fetch_arrow_table()
        equal("ADBC", (table.num_rows, table.column("orders").to_pylist()[:2]), (100, [10, 10]))
        equal("ADBC types", [str(field.type) for field in table.schema], ["string", "int64", "decimal128(28, 2)", "timestamp[us, tz=UTC]"])
        cursor.execute("SELECT unit, day, tags, raw, ok, score, amount FROM orders WHERE order_id = 'o1'")
        equal("ADBC values", cursor.fetchall(), [(str(uuid.UUID(int=1)), datetime.date(2026, 2, 2), ["x", "y z"], b"\x00\xff", False, 0.125, decimal.Decimal("0.01"))])
        cursor.execute("SELECT * FROM orders")
        equal("ADBC batches", sum(batch.num_rows for batch in cursor.fetch_record_batch()) >= 1000, True)
        refused("ADBC column", adbc_driver_manager.Error, 'there is no column "nothing"', lambda: cursor.execute("SELECT nothing FROM orders"))
        refused("ADBC INSERT", adbc_driver_manager.NotSupportedError, "INSERT is not supported here", lambda: cursor.execute("INSERT INTO units VALUES (1)"))
        equal("ADBC after errors", cursor.execute("SELECT 1") and None or cursor.fetchall(), [(1,)])
        refused("ADBC ingest", adbc_driver_manager.NotSupportedError, "nothing can be written here", lambda: cursor.adbc_ingest("units", table))


def parameters():
    with connect() as connection, connection.cursor() as cursor:
        for column, value in [("customer_id", "c1"), ("day", datetime.date(2026, 2, 2)), ("amount", decimal.Decimal("0.01")), ("raw", b"\x00\xff"),
                              ("ok", False), ("score", 0.125), ("ts", datetime.datetime(2026, 3, 1, 0, 1, tzinfo=UTC)), ("unit", str(uuid.UUID(int=1)))]:
            cursor.execute(f"SELECT order_id FROM orders WHERE order_id = $1 AND {column} = $2", ("o1", value))
            equal(f"ADBC {column}", cursor.fetchall(), [("o1",)])
        cursor.execute("SELECT orders FROM orders_by_customer WHERE customer_id = $1", ("c7",))
        equal("ADBC lookup", cursor.fetchall(), [(10,)])
        cursor.execute("SELECT orders FROM orders_by_customer WHERE customer_id = ? AND orders > ?", ("c7", 1))
        equal("ADBC question marks", cursor.fetchall(), [(10,)])
        schema = cursor.adbc_prepare("SELECT orders FROM orders_by_customer WHERE customer_id = $1 AND orders > $2")
        equal("ADBC parameters", [str(field.type) for field in schema], ["string", "int64"])


def frames():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(VIEW)
        frame = cursor.fetch_df()
        equal("pandas", (len(frame), int(frame["orders"].sum()), str(frame["customer_id"][0])), (100, 1000, "c0"))
        frame = polars.read_database(VIEW, connection)
        equal("Polars", (frame.height, frame["orders"].sum(), frame["amount"].sum()), (100, 1000, decimal.Decimal("4995.00")))
        cursor.execute("SELECT customer_id FROM orders_by_customer WHERE customer_id = $1", ("c3",))
        equal("Polars from ADBC", polars.from_arrow(cursor.fetch_arrow_table()).rows(), [("c3",)])


def listings():
    with connect() as connection:
        objects = connection.adbc_get_objects(depth="columns", catalog_filter="basestream", db_schema_filter="public").read_all().to_pylist()
        [schema] = objects[0]["catalog_db_schemas"]
        tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
        equal("ADBC tables", (tables["orders"]["table_type"], tables["units"]["table_type"]), ("TABLE", "VIEW"))
        equal("ADBC columns", [column["column_name"] for column in tables["units"]["table_columns"]], ["unit", "n"])
        everything = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        names = {schema["db_schema_name"] for catalog in everything for schema in catalog["catalog_db_schemas"]}
        equal("ADBC everything", {"public", "system"} <= names, True)
        equal("ADBC schema", connection.adbc_get_table_schema("units").names, ["unit", "n"])
        equal("ADBC table types", sorted(connection.adbc_get_table_types()), ["SYSTEM TABLE", "TABLE", "VIEW"])
        equal("ADBC info", connection.adbc_get_info()["vendor_name"], "basestream")


def tokens():
    for options in ({"username": "analyst", "password": TOKEN}, {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}):
        with connect(db_kwargs=options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM orders_by_customer WHERE customer_id LIKE 'c%'")
            equal("ADBC with a token", cursor.fetchall(), [(100,)])
            refused("ADBC beyond a token", adbc_driver_manager.ProgrammingError, "may not read", lambda: cursor.execute("SELECT * FROM orders"))
    wrong = {"username": "analyst", "password": "bst_wrong"}
    refused("ADBC wrong token", adbc_driver_manager.Error, "do not match", lambda: connect(db_kwargs=wrong).cursor().execute("SELECT 1"))


def times():
    header = {"adbc.flight.sql.rpc.call_header.basestream-as-of": "2026-03-01T00:30:00Z"}
    with connect(db_kwargs=header) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT orders FROM orders_by_customer WHERE customer_id = 'c1'")
        equal("ADBC as of", cursor.fetchall(), [(1,)])
        cursor.execute("SET as_of = '2026-03-01T02:30:00Z'; SELECT orders FROM orders_by_customer WHERE customer_id = 'c1'")
        equal("ADBC SET as_of", cursor.fetchall(), [(2,)])


def cancelling():
    import threading

    with connect() as connection, connection.cursor() as cursor:
        threading.Timer(0.5, cursor.adbc_cancel).start()
        began = time.monotonic()
        endless = "SELECT count(*) FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17"
        refused("ADBC cancel", adbc_driver_manager.Error, "", lambda: cursor.execute(endless) and None or cursor.fetchall())
        equal("ADBC cancelled soon", time.monotonic() - began < 20, True)


def pyarrow_flight():
    # A command of Flight SQL: `Any` of a CommandStatementQuery, whose first field is the text.
    def field(number, value):
        assert len(value) < 128
        return bytes([number << 3 | 2, len(value)]) + value

    sql = "SELECT orders FROM orders_by_customer WHERE customer_id = 'c1'"
    command = field(1, b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery") + field(2, field(1, sql.encode()))
    with pyarrow.flight.connect(URI) as client:
        bearer = client.authenticate_basic_token("analyst", TOKEN)
        options = pyarrow.flight.FlightCallOptions(headers=[bearer])
        info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(command), options)
        reader = client.do_get(info.endpoints[0].ticket, options)
        meta = json.loads(reader.schema.metadata[b"basestream-meta"])
        equal("pyarrow meta", (meta["versions"], meta["degraded"]), ({"orders_by_customer": 1}, False))
        equal("pyarrow", reader.read_all().to_pylist(), [{"orders": 10}])


if __name__ == "__main__":
    for client in (adbc, parameters, frames, listings, tokens, times, cancelling, pyarrow_flight):
        client()
