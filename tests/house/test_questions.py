"""A stranger's questions: a plain search of names and docstrings must find the file that answers (`questions.yaml`)."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
QUESTIONS = yaml.safe_load((Path(__file__).parent / "questions.yaml").read_text(encoding="utf-8"))
WANTED = 36  # of the questions answered
BEST = 3  # files that a stranger opens
WEIGHTS = (3.0, 2.0, 1.0)  # of a word in the path, in the first line, in any docstring
SUFFIX = re.compile(r"(ations?|ings?|ions?|ed|es|s|e)$")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def stem(word: str) -> str:
    cut = SUFFIX.sub("", word) if len(word) > 3 else word
    return re.sub(r"(.)\1$", r"\1", cut)[:6] if len(cut) > 2 else word


def stems(text: str) -> set[str]:
    return {stem(word) for word in re.findall(r"[a-z0-9]+", text.lower())}


def fields(path: Path) -> tuple[set[str], ...]:
    """Return the stems of a file's path, of its first line (or heading), and of all its docstrings (or its prose)."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        first = (ast.get_docstring(tree) or "").partition("\n")[0]
        text = "\n".join(ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    else:
        first = text.partition("\n")[0]
    return stems(path.relative_to(ROOT).with_suffix("").as_posix()), stems(first), stems(text)


@functools.cache
def files() -> dict[str, tuple[set[str], ...]]:
    paths = [path for folder in ("mtlscale", "pipelines", "docs") for path in sorted((ROOT / folder).rglob("*"))]
    return {path.relative_to(ROOT).as_posix(): fields(path) for path in paths if path.suffix in (".py", ".md", ".yaml")}


@functools.cache
def holders() -> Counter[str]:
    """Return word -> number of files that have it."""
    return Counter(word for parts in files().values() for word in set().union(*parts))


def ranked(words: str) -> list[str]:
    """Return all files, best first: the sum over words of rarity times the weights of the fields that have the word."""
    rarity = {word: math.log(len(files()) / holders()[word]) for word in stems(words) if word in holders()}
    scores = {
        name: sum(r * w for word, r in rarity.items() for w, part in zip(WEIGHTS, parts, strict=True) if word in part)
        for name, parts in files().items()
    }
    return sorted(files(), key=lambda name: (-scores[name], len(files()[name][2]), name))


def test_questions_are_well_formed() -> None:
    assert len(QUESTIONS) == 40
    assert not [q["file"] for q in QUESTIONS if q["file"] not in files()], "the answer is no file"
    assert all(2 <= len(q["words"].split()) <= 4 for q in QUESTIONS)


def test_a_search_answers_a_strangers_questions() -> None:
    answers = {q["question"]: (q, ranked(q["words"])) for q in QUESTIONS}
    misses = [
        f"{question} [{q['words']}] -> {q['file']} is no. {found.index(q['file']) + 1}, after {', '.join(found[:BEST])}"
        for question, (q, found) in answers.items()
        if q["file"] not in found[:BEST]
    ]
    print(f"{len(QUESTIONS) - len(misses)} of {len(QUESTIONS)} answered", *misses, sep="\n")

    assert len(QUESTIONS) - len(misses) >= WANTED, "\n".join(misses)
