#!/usr/bin/env python3
"""Runs one job of Flink SQL over a Kafka topic of payments, from its beginning to its end, in one process.

    flink_sql.py question.json

The question file has: brokers, topic, jars, parallelism, and job. The kinds of a job:

    aggregate  five aggregates per account and minute by `aggregation` (window or group), into a sink that drops them
    sums       the same, but the answer is the sum of the counts and of the amounts
    decide     one record for each payment into the topic `into`, with what its account and its merchant did in the last hour

Prints the seconds of the job alone (the JVM is already running and the plan is made), and the JVM's processor seconds meanwhile and
its greatest resident memory.
"""

import json
import os
import sys

from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

# Declares some of the eleven fields; the decoder skips the others.
SOURCE = """
CREATE TABLE payments (
  {fields}, amount DECIMAL(18, 2), ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{brokers}', 'properties.group.id' = 'flink-{topic}',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
  'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
)"""
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
  payments_1h BIGINT, merchant_amount_1h DECIMAL(38, 2), decision STRING
) WITH (
  'connector' = 'kafka', 'topic' = '{into}', 'properties.bootstrap.servers' = '{brokers}',
  'key.format' = 'raw', 'key.fields' = 'account_id', 'value.format' = 'json'
)"""
OVER = "PARTITION BY {key} ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"
# Flink allows one OVER window in a SELECT.
DECIDE = f"""SELECT event_id, account_id, amount, events_1h, amount_1h, greatest_1h, payments_1h, merchant_amount_1h,
  CASE WHEN events_1h > 100 THEN 'review' WHEN amount > 10 * mean_1h THEN 'deny' ELSE 'allow' END AS decision
FROM (
  SELECT *, COUNT(*) OVER m AS payments_1h, SUM(amount) OVER m AS merchant_amount_1h
  FROM (
    SELECT *, COUNT(*) OVER a AS events_1h, SUM(amount) OVER a AS amount_1h, MAX(amount) OVER a AS greatest_1h, AVG(amount) OVER a AS mean_1h
    FROM payments WINDOW a AS ({OVER.format(key="account_id")})
  ) WINDOW m AS ({OVER.format(key="merchant_id")})
)"""


def main(path):
    with open(path, encoding="utf-8") as file:
        question = json.load(file)
    table_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in question["jars"]),
        "parallelism.default": str(question["parallelism"]),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "50000",
        "table.local-time-zone": "UTC",
    }.items():
        table_env.get_config().set(name, value)
    job = question["job"]
    fields = "event_id STRING, account_id STRING, merchant_id STRING" if job["kind"] == "decide" else "account_id STRING"
    table_env.execute_sql(SOURCE.format(fields=fields, **question))
    if job["kind"] == "decide":
        table_env.execute_sql(RECORDS.format(into=job["into"], **question))
        print(json.dumps(measured(table_env, f"INSERT INTO scored {DECIDE}")))
        return
    select = AGGREGATIONS[job["aggregation"]]
    if job["kind"] == "sums":
        print(json.dumps(sums(table_env, select)))
        return
    table_env.execute_sql(SINK)
    print(json.dumps(measured(table_env, f"INSERT INTO results {select}")))


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
