"""`benchmarks/run.py`: it lists its cases, runs the smallest form of one, and appends what that found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = sorted(path.stem for path in (ROOT / "benchmarks" / "cases").glob("*.py"))


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_every_case_is_listed_with_its_question() -> None:
    lines = bench().stdout.splitlines()
    for case in CASES:
        assert any(line.split()[:1] == [case] and len(line.split()) > 5 for line in lines), case


def test_an_unknown_case_is_answered_with_the_known_ones() -> None:
    done = bench("shufle")
    assert done.returncode == 2 and done.stderr.splitlines() == [f"no case shufle; there are {', '.join(CASES)}"]


def test_figures_are_appended_as_a_line(tmp_path: Path) -> None:
    file = tmp_path / "records" / "found.jsonl"
    for samples in ("5000", "6000"):
        done = bench("shuffle", "--quick", "--samples", samples, "--record", str(file))
        assert done.returncode == 0, done.stderr
    first, second = map(json.loads, file.read_text().splitlines())
    assert first["case"] == "shuffle" and first["good"] and first["versions"]["torch"] and first["commit"]
    assert (first["arguments"]["samples"], second["arguments"]["samples"]) == (5000, 6000)
    assert first["arguments"]["windows"] == [1, 16]  # of --quick, which a word of one's own overrides
    [table] = first["figures"]
    assert [row[0] for row in table["rows"]] == ["full permutation", "256 x 1 = 256", "256 x 16 = 4096"]
