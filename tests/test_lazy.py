"""Packages list what they offer, without importing it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from house import stubs

import mtlscale

PACKAGES = stubs.lazy_packages()


def test_dir_lists_what_is_public_and_imports_nothing() -> None:
    code = (
        f"import importlib, sys\nfor name in {PACKAGES}:\n"
        "    package = importlib.import_module(name)\n"
        "    listed = dir(package)\n"
        "    assert package.__all__ and set(package.__all__) <= set(listed), (name, package.__all__, listed)\n"
        "    assert not {'annotations', 'TYPE_CHECKING', 'lazily'} & set(listed), (name, listed)\n"
        "print([m for m in ('torch', 'ray', 'mlflow', 'pandas', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_packages_list_their_names_in_tables() -> None:
    assert len(PACKAGES) > 20


@pytest.mark.parametrize("package", PACKAGES)
def test_stubs_have_the_names_of_the_tables(package: str) -> None:
    file = stubs.stub_file(package)
    assert file.exists() and file.read_text(encoding="utf-8") == stubs.stub(package), f"run `{stubs.COMMAND}`"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_that_of_a_module(package: str) -> None:
    """An import of the module would make it the package's attribute of this name."""
    names = importlib.import_module(package).__all__
    folder = stubs.stub_file(package).parent
    assert not {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix == ".py"}.intersection(names)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'mtlscale' has no attribute 'load_experiments'"):
        mtlscale.load_experiments  # type: ignore[attr-defined]  # noqa: B018


def test_names_are_completed_in_a_shell() -> None:
    import rlcompleter

    completer = rlcompleter.Completer({"mtlscale": mtlscale})
    assert completer.complete("mtlscale.load_exp", 0) == "mtlscale.load_experiment("


def test_the_package_is_imported_at_once() -> None:
    """It brings two small modules of its own, and nothing else that is not Python's."""
    code = "import sys; before = set(sys.modules); import mtlscale; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    own = [name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names]
    assert own == ["mtlscale", "mtlscale.lazy"]
