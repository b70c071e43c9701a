"""`python -m benchmarks [NAME…]`: measure, one after the other, and print one table; exit status 1 over a bound."""

from __future__ import annotations

import importlib
import sys

from benchmarks.table import Row, show

NAMES = ("start", "cold", "overhead", "cpu", "encoders", "chat", "decide")


def main(names: list[str]) -> int:
    """Measure what is named, everything by default."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names or NAMES:
        print(f"measuring {name} …", file=sys.stderr)
        rows += importlib.import_module(f"benchmarks.{name}").measure()
    print(show(rows))
    return 1 if any(row.verdict in ("over", "under") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
