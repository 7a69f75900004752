"""Run a case of `benchmarks/cases`: one question, both sides in one run.

python benchmarks/run.py                        # the cases, a line each
python benchmarks/run.py CASE --help            # a case and its options
python benchmarks/run.py CASE --quick           # its smallest form
python benchmarks/run.py CASE --record build/benchmarks.jsonl
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]


def main() -> int:
    import harness

    words = sys.argv[1:]
    if words[:1] == ["--call"]:
        harness.answer(*words[1:])
        return 0
    known = harness.cases()
    if not words or words[0] in ("-h", "--help"):
        print(f"{__doc__}\n" + "\n".join(f"{name:20} {question}" for name, question in known.items()))
        return 0
    if words[0] not in known:
        print(f"no case {words[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    return harness.run_case(words[0], words[1:])


if __name__ == "__main__":
    sys.exit(main())
