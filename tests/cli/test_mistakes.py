"""`benchmarks/cases/mistakes.py`: what new users do wrong is answered in one line that says what was wrong."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "cases" / "mistakes.py"
MOST_UNCLEAR = 5


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mistakes", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mistakes"] = module  # dataclasses look a class's module up
    spec.loader.exec_module(module)
    return module


def test_a_verdict_is_about_what_was_said(program: ModuleType) -> None:
    def verdict(says: str, *arguments: str, accepted: bool = False) -> str:
        answer = program.judged(program.Mistake("commands", "", arguments, says, {}, accepted))
        return str(answer.verdict)

    assert verdict("did you mean mgda", "list", "balancers", "mgdaa") == "good"
    assert verdict("something else", "list", "balancers", "mgdaa") == "unclear"
    assert verdict("a word that is not there", "list", "balancers", "mgda") == "silently wrong"
    assert verdict("mgda", "list", "balancers", "mgda", accepted=True) == "good"
    assert verdict("mgda", "list", "balancers", "mgdaa", accepted=True) == "unclear"


def test_there_are_as_many_mistakes_as_strangers_made(program: ModuleType) -> None:
    mistakes = program.mistakes()
    assert len(mistakes) == 576
    assert {one.kind for one in mistakes} == set(program.KINDS)


@pytest.mark.slow
def test_mistakes_are_answered(program: ModuleType) -> None:
    answers = [program.judged(mistake) for mistake in program.mistakes()]
    verdicts = [answer.verdict for answer in answers]
    assert not {"traceback", "silently wrong"} & set(verdicts), program.shown(answers)
    assert verdicts.count("unclear") <= MOST_UNCLEAR, program.shown(answers)
