"""The examples of the guides for psql, Python, Java and DuckDB, as they are written there: each is run against the
server of `run`, at its ports, and what it computes is compared with the orders that `run` sent. Those for Grafana are
asked by `tests/tests/postgres/tools/dashboard.rs`, over the definitions of payments."""

import ast
import asyncio
import decimal
import inspect
import os
import re
import subprocess
import tempfile
import textwrap
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs/guides"
#: The ports that the guides name, and those of the server.
PORTS = {"5433": os.environ["PORT"], "5434": os.environ["FLIGHT"]}


def blocks(guide):
    """The code blocks of a guide with their languages, in its order."""
    text = (GUIDES / f"query-from-{guide}.md").read_text()
    for default, port in PORTS.items():
        text = text.replace(f":{default}", f":{port}").replace(f"port={default}", f"port={port}")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def of_language(guide, language, count):
    found = [code for of, code in blocks(guide) if of == language]
    equal(f"blocks of {language} in the guide for {guide}", len(found), count)
    return found


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: expected {expected!r}, found {found!r}")


def has(what, found, expected):
    for part in expected:
        if not re.search(part, found):
            raise SystemExit(f"{what}: expected {part!r}, found:\n{found}")


def run(command, **options):
    return subprocess.run(command, text=True, capture_output=True, **options)


def psql():
    [connect] = of_language("psql", "sh", 1)
    [script] = of_language("psql", "psql", 1)
    path = os.environ["POSTGRES_PROGRAMS"] + os.pathsep + os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        command = f"{connect.strip()} --no-psqlrc --set ON_ERROR_STOP=1"
        done = run(command, shell=True, cwd=folder, input=script, env=os.environ | {"PATH": path})
        equal("the guide for psql", (done.returncode, done.stderr), (0, ""))
        shown = [r"orders_by_customer +\| view", r"amount +\| numeric\(28,2\)", r"\n c1 +\| +10 \| +45\.10 "]
        has("the guide for psql", done.stdout, [*shown, "LookupExec", r"\n +100\n", "COPY 1"])
        with open(f"{folder}/orders.csv") as file:
            equal("the file of the guide for psql", next(file).strip(), "customer_id,orders,amount,last_order")


def python():
    # Some await at the top, as in a notebook.
    psycopg, asyncpg, sqlalchemy, flight, adbc = [run_python(code) for code in of_language("python", "python", 5)]
    ten = decimal.Decimal("45.10")
    equal("psycopg", (psycopg["row"], sorted(psycopg["many"])), ((10, ten), [("c1", 10), ("c2", 10)]))
    equal("asyncpg", sorted(tuple(row) for row in asyncpg["rows"]), [("c1", 10), ("c2", 10)])
    equal("SQLAlchemy", [tuple(row) for row in sqlalchemy["rows"]], [("c1", 10)])
    equal("pandas", of_customer(sqlalchemy["frame"].to_dict("records")), 10)
    equal("Flight SQL", (of_customer(flight["table"].to_pylist()), flight["orders"]), (10, (10,)))
    equal("Flight SQL in batches", set(flight["batch"].schema.names) > {"order_id", "amount"}, True)
    equal("Polars", of_customer(flight["frame"].to_dicts()), 10)
    equal("ADBC", of_customer(adbc["table"].to_pylist()), 10)


def run_python(code):
    names = {}
    compiled = compile(code, "a guide", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        exec(compiled, names)
    return names


def of_customer(rows):
    [orders] = [row["orders"] for row in rows if row["customer_id"] == "c1"]
    return orders


def java():
    examples = "".join(f"{{\n{textwrap.indent(code, '    ')}}}\n" for code in of_language("java", "java", 2))
    main = f"public static void main(String[] arguments) throws Exception {{\n{examples}}}\n"
    source = f"import java.sql.*;\npublic class Guide {{\n{main}}}\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Guide.java").write_text(source)
        # The driver of Flight SQL logs what it finds of its environment.
        options = ["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Djava.util.logging.config.file=/dev/null"]
        done = run(["java", *options, "-cp", os.environ["JARS"], f"{folder}/Guide.java"])
    if done.returncode != 0:
        raise SystemExit(f"the guide for Java: {done.stderr}")
    equal("the guide for Java", done.stdout.splitlines(), ["10 45.10", "10"])


def duckdb():
    import duckdb

    [script] = of_language("duckdb", "sql", 1)
    statements = [statement.query.strip() for statement in duckdb.extract_statements(script)]
    # From PyPI, for this version of DuckDB: INSTALL would ask DuckDB's own server.
    installed = [statement.rstrip(";") for statement in statements[:2]]
    equal("the guide for DuckDB", installed, ["INSTALL postgres", "LOAD postgres"])
    extensions = Path(duckdb.__file__).parents[1] / "duckdb_ext/extensions"
    [extension] = extensions.glob("*/*/postgres_scanner.duckdb_extension")
    connection = duckdb.connect()
    connection.load_extension(str(extension))
    *settings, top, row = statements[2:]
    for statement in settings:
        connection.execute(statement)
    # As Arrow: DuckDB makes Python's times by a package of their zones.
    answers = [connection.execute(statement).fetch_arrow_table().to_pylist() for statement in (top, row)]
    equal("the guide for DuckDB", [row["orders"] for row in answers[0]], [10] * 10)
    found = [(row["customer_id"], row["orders"], row["amount"]) for row in answers[1]]
    equal("the guide for DuckDB", found, [("c1", 10, decimal.Decimal("45.10"))])


if __name__ == "__main__":
    for guide in (psql, python, java, duckdb):
        guide()
