"""What was wanted and what was measured; tables of both."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    what: str
    measured: str
    wanted: str
    passed: bool


def at_most(what, value, limit):
    return Check(what, f"{value:.3f}", f"<= {limit:.3f}", value <= limit)


def at_least(what, value, limit):
    return Check(what, f"{value:.3f}", f">= {limit:.3f}", value >= limit)


def table(header, rows):
    rows = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def report(checks):
    """The table of checks, those that failed last, where they are seen."""
    ordered = sorted(checks, key=lambda check: not check.passed)
    return table(["check", "measured", "wanted", ""],
                 [[c.what, c.measured, c.wanted, "ok" if c.passed else "FAILED"] for c in ordered])
