"""What a failing kvring leaves behind, read in this one place: its verdict, its records, its diagnosis."""

import json
import pathlib
import re
from dataclasses import dataclass

_VERDICT = re.compile(r"kvring: rank (\d+) gives up: rank (\d+)")


@dataclass(frozen=True)
class Verdict:
    rank: int
    culprit: int
    time: float  # as of the line
    text: str


def verdict_in(lines):
    """The verdict of a rank among the lines that it wrote; None: none. Two are one too many."""
    found = [Verdict(int(match[1]), int(match[2]), line.time, line.text)
             for line in lines if (match := _VERDICT.search(line.text))]
    if len(found) > 1:
        raise ValueError(f"several verdicts: {[verdict.text for verdict in found]}")
    return found[0] if found else None


def read_records(folder):
    """{rank: record} of the records in a folder. Throws ValueError for one that is not whole."""
    records = {}
    for path in sorted(pathlib.Path(folder).glob("rank-*.json")):
        record = json.loads(path.read_text())
        missing = {"schema_version", "rank", "ranks", "reason", "culprit", "operations"} - record.keys()
        if missing:
            raise ValueError(f"{path.name} lacks {sorted(missing)}")
        records[record["rank"]] = record
    return records


def step_at(record, epoch_s):
    """The step that this rank was attending at a time (seconds since 1970): its last that had begun."""
    began = [operation for operation in record["operations"]
             if operation["what"] == "attend" and record["epoch_s"] + operation["posted_s"] <= epoch_s]
    return max(began, key=lambda operation: operation["posted_s"])["step"] if began else None


@dataclass(frozen=True)
class Diagnosis:
    culprit: int | None
    step: int | None


def diagnosis_in(found):
    """Of the object that `kvring diagnose --json` printed."""
    return Diagnosis(found["culprit"], found["step"])
