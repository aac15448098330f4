"""Logins over PostgreSQL where a token is required: psycopg 3, asyncpg and DuckDB's ATTACH. TOKEN_PORT names the server, and
TOKEN is the token called `clients`."""

import asyncio
import os
from pathlib import Path

PORT = int(os.environ["TOKEN_PORT"])
TOKEN = os.environ["TOKEN"]
#: A wrong token, and a user that is no token's name.
WRONG = [("clients", "bst_wrong"), ("nobody", TOKEN)]
QUERY = "SELECT orders FROM orders_by_customer WHERE customer_id = 'c1'"


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: expected {expected!r}, found {found!r}")


def refused(what, user, error, log_in):
    """That a login is refused. Returns the error; libpq has no SQLSTATE of a login, but the server's words."""
    try:
        log_in()
    except error as problem:
        if f'password authentication failed for user "{user}"' not in str(problem):
            raise SystemExit(f"{what}: found {problem}")
        return problem
    raise SystemExit(f"{what}: {user} was not refused")


def psycopg_3():
    import psycopg

    connect = lambda user, password: psycopg.connect(host="127.0.0.1", port=PORT, dbname="basestream", user=user, password=password)
    with connect("clients", TOKEN) as connection:
        equal("psycopg with a token", connection.execute(QUERY).fetchone(), (10,))
    for user, password in WRONG:
        refused("psycopg", user, psycopg.OperationalError, lambda: connect(user, password))


def asyncpg_():
    import asyncpg

    async def ask(user, password):
        connection = await asyncpg.connect(host="127.0.0.1", port=PORT, database="basestream", user=user, password=password)
        found = await connection.fetchval(QUERY)
        await connection.close()
        return found

    equal("asyncpg with a token", asyncio.run(ask("clients", TOKEN)), 10)
    for user, password in WRONG:
        problem = refused("asyncpg", user, asyncpg.exceptions.PostgresError, lambda: asyncio.run(ask(user, password)))
        equal("asyncpg SQLSTATE", problem.sqlstate, "28P01")


def duckdb_():
    import duckdb

    [extension] = Path(duckdb.__file__).parents[1].glob("duckdb_ext/extensions/*/*/postgres_scanner.duckdb_extension")
    connection = duckdb.connect()
    connection.load_extension(str(extension))

    def attach(name, user, password):
        where = f"host=127.0.0.1 port={PORT} dbname=basestream user={user} password={password}"
        connection.execute(f"ATTACH '{where}' AS {name} (TYPE postgres, READ_ONLY)")

    attach("live", "clients", TOKEN)
    found = connection.execute("SELECT orders FROM live.public.orders_by_customer WHERE customer_id = 'c1'").fetchone()
    equal("DuckDB with a token", found, (10,))
    for user, password in WRONG:
        refused("DuckDB", user, duckdb.Error, lambda: attach("other", user, password))


if __name__ == "__main__":
    for client in (psycopg_3, asyncpg_, duckdb_):
        client()
