"""Packages of components that are installed: found by their entry points, refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
BALANCER = '''
"""A balancer from a package."""

from mtlscale.balancing import Balancer
from mtlscale.config import knob


class Mine(Balancer):
    """Weight all tasks alike, as a package does."""

    name = "{name}"
    needs = "losses"
    strength: float = knob(1.0, low=0.0)

    def __call__(self, losses, gramian, state):
        return self.strength * losses.new_ones(losses.shape), state
'''


def install(site: Path, package: str, source: str, *, module: str = "") -> None:
    """Write a package and its metadata as pip does."""
    folder = site / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import methods\n")
    (folder / "methods.py").write_text(source)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mtlscale.components]\n{package} = {module or package}\n")


def python(site: Path, program: str) -> str:
    """Run a program where these packages are installed; return what it printed."""
    path = os.pathsep.join([str(site), str(TESTS), str(TESTS / "support"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


TRAINED = """
from frozen.cases import SGD, Case
from frozen.compute import in_memory, run_of
from mtlscale.config import names
from mtlscale.training import train

case = Case("uneven", {"name": "mine"}, SGD)
run = run_of(case)
print("mine" in names("balancers"), train(run, in_memory(case)).status, run.run_id)
"""


def test_a_balancer_of_an_installed_package_is_trained_and_counts_by_its_code(tmp_path: Path) -> None:
    install(tmp_path, "my_methods", BALANCER.format(name="mine"))
    listed, status, run_id = python(tmp_path, TRAINED).split()
    assert (listed, status) == ("True", "finished")

    (tmp_path / "my_methods" / "methods.py").write_text(BALANCER.format(name="mine").replace("knob(1.0", "knob(2.0"))
    assert python(tmp_path, TRAINED).split()[2] != run_id


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ({"broken": ("1 / 0", "")}, "package broken: its entry point broken = broken cannot be imported: ZeroDivision"),
        ({"absent": ("", "absent.nowhere")}, "its entry point absent = absent.nowhere cannot be imported"),
        ({"one": (BALANCER.format(name="mine"), ""), "two": (BALANCER.format(name="mine"), "")},
         "packages one (one) and two (two) both register the balancer mine; uninstall one"),
        ({"one": (BALANCER.format(name="mgda"), "")}, "mgda is a shipped balancer; give yours another name"),
        ({"one": ("EXTENDS = {}", "one.methods"), "two": ("EXTENDS = {'evaluators': []}", "two.methods")},
         "two.methods: unknown extension point 'evaluators'; did you mean evaluator?"),
        ({"one": ("EXTENDS = {'sink': ['one.methods']}", "one.methods")},
         "one.methods: EXTENDS['sink'] should be a list of \"package.module:function\""),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_package_is_said_in_a_line(
    packages: dict[str, tuple[str, str]], said: str, tmp_path: Path
) -> None:
    for package, (source, module) in packages.items():
        install(tmp_path, package, source, module=module)
    program = (
        "from mtlscale.config import extensions, names, UserError\ntry: names('balancers'), extensions('studies')\n"
    )
    program += "except UserError as error: print(error)"
    printed = python(tmp_path, program)
    assert said in printed and printed.count("\n") == 1
