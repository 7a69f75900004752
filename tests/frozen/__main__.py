"""Compare what the cases end with with what was frozen, or freeze anew those that were mended on purpose.

In the checkout: `PYTHONPATH=tests python -m frozen --check`, or `--mended` after a change of results that
`MENDED` names with its reason. Without a flag all cases are frozen, by the code as it is. A case that multiplies a
disturbance of its first parameters by more than a thousand is not frozen: it would hold the rounding of this processor.
`--conditioning` prints these factors.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Mapping

from frozen import compare
from frozen.cases import CASES, Case
from frozen.compute import compute_all
from frozen.conditioning import MOST, conditioning
from frozen.expected import FILE, MENDED, SINCE, expected, rounded, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m frozen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--mended", action="store_true", help="freeze the mended cases alone")
    parser.add_argument("--conditioning", action="store_true", help="print how much each case multiplies a disturbance")
    parser.add_argument("cases", nargs="*", default=["*"], help="names or patterns; the others are kept as they are")
    arguments = parser.parse_args()
    chosen = {n: c for n, c in CASES.items() if any(fnmatch.fnmatchcase(n, p) for p in arguments.cases)}
    if arguments.mended:
        chosen = {name: case for name, case in chosen.items() if name in MENDED}
    if arguments.conditioning or not arguments.check:
        ill_conditioned = print_conditioning(chosen)
        if arguments.conditioning or ill_conditioned:
            return int(ill_conditioned)

    if arguments.mended:
        mended = {name: results for name, results in expected().items() if name in MENDED}
        write(mended | dict(compute_all(chosen)), SINCE)
        return 0
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


def print_conditioning(cases: Mapping[str, Case]) -> bool:
    """Print each case's factor, largest first, and return whether one is too large to be frozen."""
    found = {name: conditioning(case) for name, case in cases.items()}
    for name in sorted(found, key=lambda name: -found[name].largest):
        print(f"{found[name].largest:8.1e} {name}  {found[name].where[:90]}")
    above = [name for name in found if found[name].largest > MOST]
    print(f"{len(found)} cases, {len(above)} above {MOST:g}: {', '.join(above) or 'none'}")
    return bool(above)


if __name__ == "__main__":
    sys.exit(main())
