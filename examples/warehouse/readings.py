"""Writes readings.jsonl: six racks, a reading every five seconds for fifteen minutes, some of them late or lost.

The same numbers whenever it runs."""

import json
import random
from datetime import datetime, timedelta, timezone

BEGIN = datetime(2026, 5, 7, 21, 0, tzinfo=timezone.utc)
# What happens in a rack: from which second, for how long, and how many degrees above normal at most.
EVENTS = {
    "rack-1": [],
    "rack-2": [(300, 30, 34)],
    "rack-3": [(120, 20, 28), (150, 25, 47)],
    "rack-4": [(60, 10, 27), (600, 10, 27)],
    "rack-5": [(700, 120, 52)],
    "rack-6": [(200, 15, 40), (225, 15, 30)],
}
# When a sensor is silent.
SILENT = {"rack-1": (400, 460), "rack-5": (300, 340)}


def temperature(rack, second, noise):
    above = 0.0
    for begin, length, most in EVENTS[rack]:
        if begin <= second < begin + length:
            above = max(above, most * min(1.0, (second - begin + 10) / length))
    return round(78 + above + noise.uniform(-3, 3), 1)


def main():
    noise = random.Random(7)
    readings = []
    for second in range(0, 900, 5):
        for rack in EVENTS:
            degrees = temperature(rack, second, noise)
            late = noise.choice([0] * 12 + [20, 45])
            begin, end = SILENT.get(rack, (0, 0))
            if begin <= second < end:
                continue
            at = BEGIN + timedelta(seconds=second + int(rack[-1]) % 3)
            reading = {"reading_id": f"{rack}-{second}", "ts": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "rack_id": rack, "temperature": degrees}
            readings.append((second + late, reading))
    readings.sort(key=lambda reading: reading[0])
    with open("readings.jsonl", "w") as file:
        for _, reading in readings:
            file.write(json.dumps(reading) + "\n")


if __name__ == "__main__":
    main()
