#!/usr/bin/env python3
"""What is true, told by a program that shares nothing with the toolkit: reads the produced log, applies the documented rules
(docs/reference/definitions.md, "What becomes of a record"), and evaluates each view by plain DuckDB SQL at each answer's vector.

    oracle.py task.json

The task names the log (a file of records per stream, or Kafka), the answers that were served, the ledger's counts and the
ids that producers were told to be durable. Prints what it found as JSON; exit 1 on any difference.
"""

import base64
import datetime
import decimal
import json
import re
import sys

import duckdb

# The streams and views of tests/tests/kills/site.rs, written a second time.
MAX_FUTURE_US = 10_000_000
DEDUP_WITHIN_US = 20_000_000
SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
READS = {"totals": ["payments"], "devices": ["payments"], "users": ["clicks"], "activity": ["payments", "clicks"], "links": ["payments", "clicks"], "shared": ["payments"]}
VIEWS = {
    "totals": """
        SELECT count(*) AS payments, sum(amount) AS amount, count(DISTINCT user_id) AS users, max(ts) AS newest FROM p""",
    "devices": """
        SELECT device_id,
               count(*) FILTER (ts >= $minute) AS payments_1m, count(*) FILTER (ts >= $hour) AS payments_1h,
               sum(amount) FILTER (ts >= $minute) AS amount_1m, sum(amount) FILTER (ts >= $hour) AS amount_1h,
               count(DISTINCT user_id) FILTER (ts >= $minute) AS users_1m, count(DISTINCT user_id) FILTER (ts >= $hour) AS users_1h,
               max(ts) AS last_seen,
               count(*) FILTER (ts >= $hour_fine AND ts < $minute) AS earlier
        FROM p WHERE status = 'ok' GROUP BY device_id""",
    "users": """
        SELECT user_id,
               count(*) FILTER (ts >= $ten_seconds) AS clicks_10s, count(*) AS clicks_1m,
               array_agg(page ORDER BY ts, "partition", "offset") FILTER (ts >= $ten_seconds) AS pages_10s,
               array_agg(page ORDER BY ts, "partition", "offset") AS pages_1m
        FROM c WHERE ts >= $minute GROUP BY user_id""",
    "activity": """
        SELECT user_id, count(*) AS events FROM (SELECT user_id FROM p UNION ALL SELECT user_id FROM c) GROUP BY user_id""",
    "links": """
        SELECT p.device_id,
               count(*) FILTER (p.ts >= $minute AND c.ts >= $minute) AS pairs_1m, count(*) AS pairs_1h,
               sum(c.page) FILTER (p.ts >= $minute AND c.ts >= $minute) AS pages_1m, sum(c.page) AS pages_1h,
               count(DISTINCT c.page) FILTER (p.ts >= $minute AND c.ts >= $minute) AS different_1m, count(DISTINCT c.page) AS different_1h,
               count(DISTINCT p.user_id) FILTER (p.ts >= $minute AND c.ts >= $minute) AS users_1m, count(DISTINCT p.user_id) AS users_1h
        FROM p JOIN c ON p.user_id = c.user_id
        WHERE p.status = 'ok' AND c.page < 40 AND p.ts >= $hour AND c.ts >= $hour GROUP BY p.device_id""",
    "shared": """
        SELECT a.device_id, count(DISTINCT b.device_id) FILTER (b.device_id <> a.device_id) AS devices, count(DISTINCT a.user_id) AS users
        FROM p a JOIN p b ON a.user_id = b.user_id
        WHERE b.status = 'declined' AND a.ts >= $hour AND b.ts >= $minute GROUP BY a.device_id""",
}
TIMES = {"newest", "last_seen"}


class Broken(Exception):
    """The record is no event."""


def main(path):
    with open(path, encoding="utf-8") as file:
        task = json.load(file)
    decided = {stream: decide(stream, records(stream, source)) for stream, source in task["log"].items()}
    found = {"records": {}, "answers": len(task["answers"]), "differences": []}
    for stream, of_stream in decided.items():
        found["records"][stream] = {outcome: sum(len(part[outcome]) for part in of_stream.values()) for outcome in OUTCOMES}
    compare_ledger(task["ledger"], decided, found["differences"])
    compare_ids(task["ids"], decided["payments"], found["differences"])
    database = load(decided)
    for number, answer in enumerate(task["answers"]):
        compare_answer(database, number, answer, found["differences"])
    found["difference_count"] = len(found["differences"])
    found["differences"] = found["differences"][:20]
    print(json.dumps(found, indent=1, default=str))
    return 0 if found["difference_count"] == 0 else 1


# --- the log


def records(stream, source):
    """All records as (partition, offset, timestamp in microseconds, value), each partition in the order of its offsets."""
    return from_kafka(source["kafka"], source["topic"]) if "kafka" in source else from_file(source["file"])


def from_file(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            value = record["value"]
            yield record["partition"], record["offset"], record["timestamp"], None if value is None else base64.b64decode(value)


def from_kafka(servers, topic):
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers.split(","), group_id=None, enable_auto_commit=False, isolation_level="read_committed",
        auto_offset_reset="earliest", consumer_timeout_ms=10_000,
    )
    partitions = [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
    for partition in partitions:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        while consumer.position(partition) < end:
            for messages in consumer.poll(timeout_ms=1_000).values():
                for message in messages:
                    yield partition.partition, message.offset, message.timestamp * 1_000, message.value
    consumer.close()


# --- the decision for each record

OUTCOMES = ["accepted", "duplicate", "dead"]


def decide(stream, of_log):
    """Per partition the records by outcome: a function of the partition's records up to each one."""
    partitions = {}
    for partition, offset, timestamp, value in of_log:
        part = partitions.setdefault(partition, {"clock": None, "ids": {}, "accepted": [], "duplicate": [], "dead": []})
        clock = timestamp if part["clock"] is None else max(part["clock"], timestamp)
        part["clock"] = clock
        try:
            event = DECODE[stream](value)
        except Broken:
            part["dead"].append(offset)
            continue
        if event["ts"] - clock > MAX_FUTURE_US:
            part["dead"].append(offset)
            continue
        name = event.get("event_id")
        if name is not None:
            accepted = part["ids"].get(name)
            if accepted is not None and clock - accepted <= DEDUP_WITHIN_US:
                part["duplicate"].append(offset)
                continue
            part["ids"][name] = max(timestamp, accepted or timestamp)
        part["accepted"].append((partition, offset, event))
    return partitions


def payment(value):
    fields = json_object(value)
    device = fields.get("device_id")
    if device is not None and not isinstance(device, str):
        raise Broken
    return {
        "event_id": text(fields, "event_id"), "ts": rfc3339(text(fields, "ts")), "device_id": device,
        "user_id": text(fields, "user_id"), "amount": amount(fields.get("amount")), "status": text(fields, "status"),
    }


def click(value):
    fields = json_object(value)
    at, page = fields.get("at"), fields.get("page")
    if type(at) is not int or type(page) is not int:
        raise Broken
    return {"ts": at * 1_000, "user_id": text(fields, "user_id"), "page": page}


DECODE = {"payments": payment, "clicks": click}


def json_object(value):
    if value is None:
        raise Broken
    try:
        fields = json.loads(value.decode("utf-8"))
    except ValueError:
        raise Broken from None
    if not isinstance(fields, dict):
        raise Broken
    return fields


def text(fields, name):
    found = fields.get(name)
    if not isinstance(found, str):
        raise Broken
    return found


def amount(found):
    """DECIMAL(18,2): no digit is rounded away."""
    if not isinstance(found, str) or not re.fullmatch(r"-?\d+(\.\d+)?", found):
        raise Broken
    number = decimal.Decimal(found)
    if number != number.quantize(decimal.Decimal("0.01")) or abs(number) >= 10**16:
        raise Broken
    return number


def rfc3339(found):
    try:
        time = datetime.datetime.fromisoformat(found)
    except ValueError:
        raise Broken from None
    if time.tzinfo is None:
        raise Broken
    elapsed = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return (elapsed.days * 86_400 + elapsed.seconds) * SECOND + elapsed.microseconds


# --- the views


def load(decided):
    database = duckdb.connect()
    database.execute('CREATE TABLE payments ("partition" INT, "offset" BIGINT, ts BIGINT, device_id TEXT, user_id TEXT, amount DECIMAL(18,2), status TEXT)')
    database.execute('CREATE TABLE clicks ("partition" INT, "offset" BIGINT, ts BIGINT, user_id TEXT, page BIGINT)')
    columns = {"payments": ["ts", "device_id", "user_id", "amount", "status"], "clicks": ["ts", "user_id", "page"]}
    for stream, partitions in decided.items():
        rows = [[p, o] + [event[name] for name in columns[stream]] for part in partitions.values() for p, o, event in part["accepted"]]
        insert(database, stream, rows)
    return database


def insert(database, table, rows):
    """By a CSV file: DuckDB takes single rows slowly. Its form is told: guessed from the first rows, rare quotes are passed over."""
    import csv
    import tempfile

    if not rows:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([["\\N" if value is None else value for value in row] for row in rows])
        file.flush()
        database.execute(f"COPY {table} FROM '{file.name}' (FORMAT csv, AUTO_DETECT false, DELIMITER ',', QUOTE '\"', ESCAPE '\"', HEADER false, NULLSTR '\\N')")


def compare_answer(database, number, answer, differences):
    view = answer["view"]
    place = f"answer {number}, {view} at {answer['as_of']} ({answer.get('of', '')})"
    cut = vector(answer["cut"])
    database.execute('CREATE OR REPLACE TEMP TABLE cut (stream TEXT, "partition" INT, next BIGINT)')
    if cut:
        database.executemany("INSERT INTO cut VALUES (?, ?, ?)", cut)
    for name, stream in (("p", "payments"), ("c", "clicks")):
        database.execute(
            f'CREATE OR REPLACE TEMP VIEW {name} AS SELECT s.* FROM {stream} s '
            f"JOIN cut ON cut.stream = '{stream}' AND cut.\"partition\" = s.\"partition\" WHERE s.\"offset\" < cut.next"
        )
    tables = {"payments": "p", "clicks": "c"}
    newest = [database.execute(f"SELECT max(ts) FROM {tables[stream]}").fetchone()[0] for stream in READS[view]]
    t = max((time for time in newest if time is not None), default=0)
    if rfc3339(answer["as_of"]) != t:
        differences.append(f"{place}: the answer's t should be {t}")
        return
    expected = query(database, view, t)
    served = [[value(name, row.get(name)) for name in expected["names"]] for row in answer["rows"]]
    key = lambda row: json.dumps(row, default=str, sort_keys=True)
    expected_rows, served_rows = sorted(map(key, expected["rows"])), sorted(map(key, served))
    if expected_rows != served_rows:
        only_expected = [row for row in expected_rows if row not in set(served_rows)]
        only_served = [row for row in served_rows if row not in set(expected_rows)]
        differences.append(
            f"{place}, columns {expected['names']}: {len(served_rows)} rows served, {len(expected_rows)} expected; "
            f"expected and not served: {only_expected[:2]}; served and not expected: {only_served[:2]}"
        )


def query(database, view, t):
    """The edges of the windows: floor_to_hop(t - W). The hop of 1m and 10s is a second, of 1h a minute; of a range that ends
    earlier that of its smaller bound."""
    floor = lambda time, hop: time - time % hop
    edges = {
        "minute": floor(t - MINUTE, SECOND), "ten_seconds": floor(t - 10 * SECOND, SECOND),
        "hour": floor(t - HOUR, MINUTE), "hour_fine": floor(t - HOUR, SECOND),
    }
    sql = VIEWS[view]
    for name, edge in sorted(edges.items(), reverse=True):
        sql = sql.replace(f"${name}", str(edge))
    answer = database.execute(sql)
    names = [column[0] for column in answer.description]
    return {"names": names, "rows": [[value(name, found) for name, found in zip(names, row)] for row in answer.fetchall()]}


def value(name, found):
    """One form for both sides."""
    if found is None:
        return None
    if name in TIMES:
        return rfc3339(found) if isinstance(found, str) else found
    if name.startswith("amount"):
        return str(decimal.Decimal(str(found)).quantize(decimal.Decimal("0.01")))
    if isinstance(found, list):
        return [int(item) for item in found]
    if name in ("user_id", "device_id"):
        return found
    return int(found)


def vector(token):
    entries = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode().split(",")
    found = []
    for entry in filter(None, entries):
        partition, offset = entry.rsplit(":", 1)
        stream, number = partition.rsplit("/", 1)
        found.append((stream, int(number), int(offset)))
    return found


# --- the ledger, and what producers were acknowledged


def compare_ledger(ledger, decided, differences):
    """The counts of the ledger, per stream and partition, are those of the rules."""
    counted = {(line["stream"], line["partition"]): line for line in ledger}
    for stream, partitions in decided.items():
        for partition, part in partitions.items():
            expected = [len(part["accepted"]), len(part["duplicate"]), len(part["dead"]), 0]
            line = counted.pop((stream, partition), None)
            found = line and [line["archived"], line["duplicate"], line["dead_lettered"], line["absent"]]
            if found != expected:
                differences.append(f"ledger of {stream}/{partition}: found {found}, expected {expected} (archived, duplicate, dead, absent)")
    differences.extend(f"ledger of {key}: the log has no such partition" for key, line in counted.items() if any(line[name] for name in ("archived", "duplicate", "dead_lettered")))


def compare_ids(ids, payments, differences):
    """What a producer was told to be durable is an event; what it sent once is one event."""
    times = {}
    for part in payments.values():
        for _, _, event in part["accepted"]:
            times[event["event_id"]] = times.get(event["event_id"], 0) + 1
    lost = [name for name in ids["once"] + ids["at_least_once"] if name not in times]
    double = [name for name in ids["once"] if times.get(name, 0) > 1]
    if lost:
        differences.append(f"{len(lost)} acknowledged events are not accepted: {lost[:3]}")
    if double:
        differences.append(f"{len(double)} events that were sent once are accepted more than once: {double[:3]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
