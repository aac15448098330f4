#!/usr/bin/env python3
"""Runs one job of Flink SQL over a Kafka topic of payments, from its beginning, in one process.

    flink_sql.py question.json

The question file has: brokers, topic, jars, parallelism, checkpoints (a folder), and job. The kinds of a job:

    aggregate  five aggregates per account and minute by `aggregation` (window or group), into a sink that drops them
    sums       the same, but the answer is the sum of the counts and of the amounts
    decide     one record for each payment into the topic `into`, with what its account and its merchant did in the last hour; with
               `checkpoint_s` exactly once, in transactions that checkpoints commit every so many seconds, with `state` in `rocksdb`
               or `hashmap`
    decide_arriving  the same of payments that arrive, at once (by processing time), with the place of each payment in its topic

The first three end with the topic. They print the seconds of the job alone (the JVM is already running and the plan is made), and the
JVM's processor seconds meanwhile and its greatest resident memory. `decide_arriving` prints the process id of the JVM once the job runs,
and stops at the end of its input.
"""

import json
import os
import sys
import time

from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

# Declares some of the eleven fields; the decoder skips the others.
SOURCE = """
CREATE TABLE payments (
  {fields}, amount DECIMAL(18, 2), {clock}
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{brokers}', 'properties.group.id' = 'flink-{topic}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = '{end}',
  'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
)"""
EVENT_TIME = "ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
# A window of processing time gives a row as soon as it comes. By event time it would wait for a watermark.
ARRIVING = """source_partition INT METADATA FROM 'partition' VIRTUAL, source_offset BIGINT METADATA FROM 'offset' VIRTUAL,
  arrived AS PROCTIME()"""
SINK = """
CREATE TABLE results (
  account_id STRING, minute_start TIMESTAMP_LTZ(3), events BIGINT, amount DECIMAL(38, 2), mean DECIMAL(38, 2),
  least DECIMAL(18, 2), greatest DECIMAL(18, 2)
) WITH ('connector' = 'blackhole')"""
VALUES = """COUNT(*) AS events, SUM(amount) AS amount, CAST(AVG(amount) AS DECIMAL(38, 2)) AS mean, MIN(amount) AS least,
  MAX(amount) AS greatest"""
AGGREGATIONS = {
    "window": f"""SELECT account_id, CAST(window_start AS TIMESTAMP_LTZ(3)) AS minute_start, {VALUES}
        FROM TUMBLE(TABLE payments, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY account_id, window_start, window_end""",
    "group": f"SELECT account_id, FLOOR(ts TO MINUTE) AS minute_start, {VALUES} FROM payments GROUP BY account_id, FLOOR(ts TO MINUTE)",
}
RECORDS = """
CREATE TABLE scored (
  event_id STRING, account_id STRING, amount DECIMAL(18, 2), events_1h BIGINT, amount_1h DECIMAL(38, 2), greatest_1h DECIMAL(18, 2),
  payments_1h BIGINT, merchant_amount_1h DECIMAL(38, 2), decision STRING{place_types}
) WITH (
  'connector' = 'kafka', 'topic' = '{into}', 'properties.bootstrap.servers' = '{brokers}',
  'key.format' = 'raw', 'key.fields' = 'account_id', 'value.format' = 'json'{delivery}
)"""
# A broker refuses longer transactions than 15 minutes, and Flink's default is an hour.
EXACTLY_ONCE = """,
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{into}', 'properties.transaction.timeout.ms' = '600000'"""
OVER = "PARTITION BY {key} ORDER BY {order} RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"
# Flink allows one OVER window in a SELECT.
DECIDE = """SELECT event_id, account_id, amount, events_1h, amount_1h, greatest_1h, payments_1h, merchant_amount_1h,
  CASE WHEN events_1h > 100 THEN 'review' WHEN amount > 10 * mean_1h THEN 'deny' ELSE 'allow' END AS decision{places}
FROM (
  SELECT *, COUNT(*) OVER m AS payments_1h, SUM(amount) OVER m AS merchant_amount_1h
  FROM (
    SELECT *, COUNT(*) OVER a AS events_1h, SUM(amount) OVER a AS amount_1h, MAX(amount) OVER a AS greatest_1h, AVG(amount) OVER a AS mean_1h
    FROM payments WINDOW a AS ({by_account})
  ) WINDOW m AS ({by_merchant})
)"""


def main(path):
    with open(path, encoding="utf-8") as file:
        question = json.load(file)
    table_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in settings(question).items():
        table_env.get_config().set(name, value)
    job = question["job"]
    if job["kind"].startswith("decide"):
        decide(table_env, question)
        return
    table_env.execute_sql(SOURCE.format(fields="account_id STRING", clock=EVENT_TIME, end="latest-offset", **question))
    select = AGGREGATIONS[job["aggregation"]]
    if job["kind"] == "sums":
        print(json.dumps(sums(table_env, select)))
        return
    table_env.execute_sql(SINK)
    print(json.dumps(measured(table_env, f"INSERT INTO results {select}")))


def settings(question):
    job = question["job"]
    values = {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in question["jars"]),
        "parallelism.default": str(question["parallelism"]),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "table.local-time-zone": "UTC",
    }
    if job["kind"] != "decide_arriving":
        values |= {
            "table.exec.mini-batch.enabled": "true",
            "table.exec.mini-batch.allow-latency": "1 s",
            "table.exec.mini-batch.size": "50000",
        }
    if job.get("checkpoint_s") is not None:
        values |= {
            "execution.checkpointing.interval": f"{job['checkpoint_s']} s",
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": f"file://{question['checkpoints']}",
            "execution.checkpointing.incremental": "true",
            "state.backend.type": job["state"],
            # RocksDB's caches and buffers; a local job has 128 MiB otherwise.
            "taskmanager.memory.managed.size": "1g",
        }
    return values


def decide(table_env, question):
    job = question["job"]
    arrives = job["kind"] == "decide_arriving"
    fields = "event_id STRING, account_id STRING, merchant_id STRING"
    clock, order, end = (ARRIVING, "arrived", "unbounded") if arrives else (EVENT_TIME, "ts", "latest-offset")
    delivery = "" if job["checkpoint_s"] is None else EXACTLY_ONCE.format(into=job["into"])
    place_types = ", source_partition INT, source_offset BIGINT" if arrives else ""
    places = ", source_partition, source_offset" if arrives else ""
    windows = {f"by_{key}": OVER.format(key=f"{key}_id", order=order) for key in ["account", "merchant"]}
    table_env.execute_sql(SOURCE.format(fields=fields, clock=clock, end=end, **question))
    table_env.execute_sql(RECORDS.format(into=job["into"], place_types=place_types, delivery=delivery, **question))
    insert = f"INSERT INTO scored {DECIDE.format(places=places, **windows)}"
    if arrives:
        run_until_input_ends(table_env, insert)
    else:
        print(json.dumps(measured(table_env, insert)))


def run_until_input_ends(table_env, insert):
    job = table_env.execute_sql(insert).get_job_client()
    while (status := str(job.get_job_status().result())).rsplit(".", 1)[-1] != "RUNNING":
        if status.rsplit(".", 1)[-1] in ("FAILING", "FAILED", "CANCELED"):
            sys.exit(f"the job does not run: {status}")
        time.sleep(0.05)
    print(json.dumps({"jvm": get_gateway().jvm.java.lang.ProcessHandle.current().pid()}), flush=True)
    sys.stdin.read()
    job.cancel().result()


def measured(table_env, insert):
    jvm = get_gateway().jvm.java.lang.ProcessHandle.current().pid()
    before = processor_s(jvm)
    job = table_env.execute_sql(insert).get_job_client()
    seconds = job.get_job_execution_result().result().get_net_runtime() / 1000
    return {"seconds": seconds, "processor_s": processor_s(jvm) - before, "peak_bytes": peak_bytes(jvm)}


def sums(table_env, select):
    """The last row is the answer. The rows before it are the sums of what had been read until then."""
    last = None
    with table_env.execute_sql(f"SELECT SUM(events), SUM(amount) FROM ({select})").collect() as rows:
        for row in rows:
            last = row
    return {"events": last[0], "amount": str(last[1])}


def processor_s(process):
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(process):
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1])
