"""Every case ends with the numbers that were frozen. Bytes may differ: another processor rounds in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checkpoints import where_installed
from frozen import compare
from frozen.__main__ import print_conditioning
from frozen.cases import CASES
from frozen.compute import compute, compute_with_two_workers
from frozen.expected import MENDED, expected, rounded

WITH_TWO = [name for name, case in CASES.items() if case.flavour == "two workers"]


@pytest.fixture(scope="module")
def frozen() -> dict[str, list[dict[str, Any]]]:
    return expected()


@pytest.fixture(scope="module")
def of_two_workers() -> dict[str, list[dict[str, Any]]]:
    """All cases that need a pair of processes, which take seconds to start."""
    return dict(zip(WITH_TWO, compute_with_two_workers([CASES[name] for name in WITH_TWO]), strict=True))


def assert_as_frozen(name: str, results: list[dict[str, Any]], frozen: dict[str, list[dict[str, Any]]]) -> None:
    found = compare.difference(rounded(results), frozen[name])
    assert found.largest <= compare.TOLERANCE, f"differs by {found.largest:.1e} in {found.where}"


@pytest.mark.parametrize("name", where_installed(name for name in CASES if name not in WITH_TWO))
def test_a_run_ends_as_it_was_frozen(name: str, frozen: dict[str, list[dict[str, Any]]]) -> None:
    assert_as_frozen(name, compute(CASES[name]), frozen)


@pytest.mark.slow  # conformance holds two workers to one, and one is held to what was frozen above
@pytest.mark.parametrize("name", WITH_TWO)
def test_a_run_of_two_workers_ends_as_it_was_frozen(
    name: str, frozen: dict[str, list[dict[str, Any]]], of_two_workers: dict[str, list[dict[str, Any]]]
) -> None:
    assert_as_frozen(name, of_two_workers[name], frozen)


def test_what_is_frozen_are_the_cases() -> None:
    assert set(expected()) == set(CASES) and set(MENDED) <= set(CASES)


def test_a_case_that_multiplies_rounding_is_not_frozen(
    capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--disturb"):
        pytest.skip("what is disturbed already cannot be measured")
    well = CASES["architecture, images/conal"]
    ill = replace(well, training={**well.training, "lr": 5.0})  # steps that are far too long
    assert print_conditioning({"well": well, "ill": ill})
    assert "2 cases, 1 above 1000: ill" in capsys.readouterr().out


@pytest.mark.slow
def test_no_case_multiplies_rounding() -> None:
    assert not print_conditioning(CASES)
