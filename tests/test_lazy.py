"""Packages list what they offer, without importing it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import mtlscale

LAZY = ["mtlscale", "mtlscale.execution", "mtlscale.training", "mtlscale.data", "mtlscale.report", "pipelines"]


@pytest.mark.parametrize("package", LAZY)
def test_dir_lists_what_is_public_and_imports_nothing(package: str) -> None:
    code = (
        f"import sys, {package} as p\nlisted = dir(p)\n"
        "assert set(p.__all__) <= set(listed), set(p.__all__) - set(listed)\n"
        "assert not {'annotations', 'TYPE_CHECKING', 'lazily'} & set(listed)\n"
        "print([m for m in ('torch', 'ray', 'mlflow', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_names_are_completed_in_a_shell() -> None:
    import rlcompleter

    completer = rlcompleter.Completer({"mtlscale": mtlscale})
    assert completer.complete("mtlscale.load_exp", 0) == "mtlscale.load_experiment("


def test_the_package_is_imported_at_once() -> None:
    began = time.process_time()
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import mtlscale"], capture_output=True, text=True)
    assert done.returncode == 0 and time.process_time() - began < 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.endswith(" mtlscale") and int(line.split("|")[1]) < 1_000_000
