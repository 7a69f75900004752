"""Freeze what the cases end with into `runs.json`, or compare with it.

In the checkout: `PYTHONPATH=tests python -m frozen`, or `PYTHONPATH=tests python -m frozen --check`.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time

from frozen import compare
from frozen.cases import CASES
from frozen.compute import compute_all
from frozen.expected import FILE, expected, rounded, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m frozen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("cases", nargs="*", default=["*"], help="names or patterns; the others are kept as they are")
    arguments = parser.parse_args()
    chosen = {n: c for n, c in CASES.items() if any(fnmatch.fnmatchcase(n, p) for p in arguments.cases)}
    known = {name: results for name, results in expected().items() if name in CASES}
    failed, tensors, identical, started = [], 0, 0, time.perf_counter()
    for name, results in compute_all(chosen):
        if not arguments.check:
            known[name] = results
        elif name not in known:
            failed.append(name)
            print(f"unknown  {name}")
        else:
            found = compare.difference(rounded(results), known[name])
            tensors, identical = tensors + found.tensors, identical + found.identical
            failed += [name] if found.largest > compare.TOLERANCE else []
            print(f"{found.largest:8.1e} {found.identical:4d}/{found.tensors:4d} {name}  {found.where}", flush=True)
    seconds = time.perf_counter() - started
    if arguments.check:
        print(f"{len(chosen)} cases in {seconds:.0f} s: {len(failed)} differ by more than {compare.TOLERANCE:g}")
        print(f"{identical} of {tensors} tensors are the same bytes")
        return int(bool(failed))
    write(known)
    print(f"{len(chosen)} cases in {seconds:.0f} s; {FILE.name} has {FILE.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
