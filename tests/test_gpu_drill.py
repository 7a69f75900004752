"""`run.py gpu`: it runs with no more than it says it needs, finds what is wrong, says so where there is no GPU."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "benchmarks" / "run.py"
# What a machine with a GPU and little else lacks: all that the package depends on and the drill does not.
ABSENT = (
    "datasets", "fsspec", "gensim", "joblib", "lightning_utilities", "mlflow", "optuna", "pandas",
    "psutil", "ray", "rich", "sklearn", "torchjd", "torchvision", "typer", "vl_convert",
)  # fmt: skip
BARE = f"""
import runpy, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {ABSENT!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
"""


def drill(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    words = [str(PROGRAM), "gpu", *arguments]
    code = f"{BARE}\nsys.argv = {words!r}\n{before}\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    # -I: nothing of this environment's but what is installed; the program finds its own checkout.
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=280, cwd="/")


@pytest.mark.slow  # half a minute of starting processes
def test_it_runs_without_what_it_does_not_need(tmp_path: Path) -> None:
    done = drill("--device", "cpu", "--small", "--output", str(tmp_path / "gpu.md"))
    assert done.returncode == 0, done.stderr[-2000:]
    text = (tmp_path / "gpu.md").read_text()
    assert text == done.stdout
    assert "All as on the host." in text and "WRONG" not in text
    assert text.count("torchvision") == 2  # where residual networks are missing
    for title in ("Correctness against the host", "Cost of a step", "Mixed precision", "Learners"):
        rows = text.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
        table = [row for row in rows if row.startswith("| ")]
        assert len(table) > 5 and len({row.count("|") for row in table if "torchvision" not in row}) == 1
    assert "| vectors | mgda | 0.00 |" in text and "| MLP, T = 10 | mgda_ub | bf16 |" in text


def test_another_answer_than_the_hosts_is_found() -> None:
    """The second of two runs, which is the device's, has another learning rate."""
    lie = f"""
sys.path.insert(0, {str(ROOT)!r})
import mtlscale.training.engine.phases as phases
made, count = phases.make_optimizer, [0]
def make(settings, parameters, *rest):
    count[0] += 1
    wrong = 1.0 + 1e-6 * (count[0] % 4 == 2)
    return made(settings.model_copy(update={{"lr": settings.lr * wrong}}), parameters, *rest)
phases.make_optimizer = make
"""
    done = drill("--device", "cpu", "--small", "--minutes", "0.05", before=lie)
    assert done.returncode == 1 and "WRONG: vectors, aligned_mtl" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_ends_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the program adds its own checkout
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), "gpu"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    said = capsys.readouterr().out
    assert end.value.code == 0 and said.startswith("No GPU here") and len(said.splitlines()) == 1


def test_what_is_missing_is_said_in_one_line() -> None:
    lacking = "import importlib.util as util\nfind = util.find_spec\n"
    done = drill(before=lacking + "util.find_spec = lambda name: None if name == 'scipy' else find(name)")
    assert done.returncode == 1 and done.stderr.strip() == "needs scipy: pip install scipy"
