"""`python -m benchmarks [NAME…]`: measure, one after the other, and print the processor and one table.

Exit status 1 over a bound, 3 where another program was at work and nothing was measured.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.neighbours import LOAD, load_before
from benchmarks.table import Row, show
from functions.engines.processor import processor

INSTRUCTIONS = (("AMX", "amx"), ("AVX-512", "avx512f"), ("bf16", "avx512_bf16"), ("VNNI", "avx512_vnni"))
NAMES = ("start", "cold", "overhead", "cpu", "encoders", "chat", "decide")


def main(names: list[str]) -> int:
    """Measure what is named, everything by default."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    loads: list[float] = []
    for name in names or NAMES:
        loads.append(load_before())
        if loads[-1] > LOAD:
            rows.append(Row(name, None, note=f"other programs took {loads[-1]:.1f} cores before it began"))
            continue
        print(f"measuring {name} …", file=sys.stderr)
        rows += importlib.import_module(f"benchmarks.{name}").measure()
    print(f"{machine()}; other programs took at most {max(loads):.2f} cores before a benchmark began\n")
    print(show(rows))
    if any(row.verdict in ("over", "under") for row in rows):
        return 1
    return 3 if max(loads) > LOAD else 0


def machine() -> str:
    """Return the processor: its model, whether it has AMX and AVX-512, and the cores that may be used."""
    found = processor()
    parts = [f"{'with' if found.has(flag) else 'without'} {name}" for name, flag in INSTRUCTIONS]
    return f"{found.model}, {', '.join(parts)}, {found.cores} cores"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
