"""Computes what the view and the query must answer, and what the sinks must put out, from readings.jsonl, in plain
loops, and writes expected.json."""

import json
from datetime import datetime


def seconds(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def duration(total):
    """As ISO 8601 has it: PT1M5S."""
    minutes, rest = divmod(total, 60)
    return "PT" + (f"{minutes}M" if minutes else "") + (f"{rest}S" if rest or not minutes else "")


def alarms(hot):
    """Pairs within 15 seconds that share no reading."""
    count, before = 0, None
    for at, _ in hot:
        if before is not None and at - before <= 15:
            count, before = count + 1, None
        else:
            before = at
    return count


def repeated(first, second):
    """Whether a pair of `first` is followed by a pair of `second` that begins within 30 seconds."""
    ends = [b for i, (a, _) in enumerate(first) for b, _ in first[i + 1:] if b - a <= 15]
    begins = [a for i, (a, _) in enumerate(second) for b, _ in second[i + 1:] if b - a <= 15]
    return any(end < begin <= end + 30 for end in ends for begin in begins)


def steps(readings):
    """The longest chain over the limits within two minutes of its beginning."""
    best = 0
    for i, (begin, degrees) in enumerate(readings):
        if degrees <= 90:
            continue
        reached = 0
        for at, degrees in readings[i:]:
            if at - begin > 120:
                break
            # A reading may pass several limits.
            while reached < 4 and degrees > [90, 100, 110, 120][reached]:
                reached += 1
        best = max(best, reached)
    return best


def critical(hot, names):
    pairs = [(a, b, max(x, y)) for (a, x), (b, y) in zip(hot, hot[1:]) if b - a <= 15]
    found = {}
    for begin, end, heat in pairs:
        before = [h for _, e, h in pairs if e < begin and end - e <= 30 and h < heat]
        if before:
            found[names[end]] = {"before": max(before), "now": heat}
    return found


def raised_alarms(arrived):
    """A record for each hot reading that comes when the last 15 seconds have another one. The time is that of the newest
    reading of the rack. Those of other racks in the same partition differ by at most two seconds, which changes nothing
    here: every way to put the racks into partitions gives the same records."""
    newest, hot, found = 0, [], []
    for at, degrees in arrived:
        newest = max(newest, at)
        if degrees > 100:
            seen = [other for other_at, other in hot if other_at >= newest - 15]
            if seen:
                found.append((at, max(seen + [degrees])))
            hot.append((at, degrees))
    return found


def critical_alarms(alarms):
    """A record for each alarm that comes when the last 30 seconds have a cooler one, with the coolest."""
    newest, found = 0, []
    for number, (at, heat) in enumerate(alarms):
        newest = max(newest, at)
        seen = [other for other_at, other in alarms[:number] if other_at >= newest - 30]
        if seen and heat > min(seen):
            found.append((at, heat, min(seen)))
    return found


def main():
    racks, names = {}, {}
    for line in open("readings.jsonl"):
        reading = json.loads(line)
        at = seconds(reading["ts"])
        names[at] = reading["ts"]
        racks.setdefault(reading["rack_id"], []).append((at, reading["temperature"]))
    expected = {}
    for rack, readings in sorted(racks.items()):
        raised = raised_alarms(readings)
        readings.sort()
        hot = [(at, degrees) for at, degrees in readings if degrees > 100]
        warm = [(at, degrees) for at, degrees in hot if degrees <= 110]
        hottest = [(at, degrees) for at, degrees in hot if degrees > 110]
        gaps = [b - a for (a, _), (b, _) in zip(readings, readings[1:])]
        expected[rack] = {
            "readings": len(readings),
            "hottest": f"{max(degrees for _, degrees in readings):.1f}",
            "alarms": alarms(hot),
            "is_repeated": repeated(hot, hot),
            "is_escalated": repeated(warm, hottest),
            "steps": steps(readings),
            "connections": 1 + sum(gap > 20 for gap in gaps),
            "silence": duration(int(max(gaps))),
            "critical": critical(hot, names),
            "raised_alarms": {names[at]: {"heat": heat} for at, heat in raised},
            "critical_alarms": {
                names[at]: {"heat": heat, "coolest_30s": coolest} for at, heat, coolest in critical_alarms(raised)
            },
        }
    with open("expected.json", "w") as file:
        json.dump(expected, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
