"""Commands on random mutations of good experiments, plugins and archives: a result or one line, never a traceback.

Some of a hundred or so by default, the others in the slow suite.
`MTLSCALE_MUTATIONS=2400 pytest tests/cli/test_mutations.py` tries so many, and
`MTLSCALE_MUTATION=experiment:17` that one alone.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import Done, mtlscale
from mutations import SOURCES, Tree, spoil_experiment, spoil_program, write_source

HERE = Path(__file__).parents[1]
UNEVEN = HERE / "plugins" / "uneven.py"
MOST_SECONDS = 60  # of a command: none of these has anything large to do
COUNT = int(os.environ.get("MTLSCALE_MUTATIONS", "140"))
ONLY = os.environ.get("MTLSCALE_MUTATION", "")
SHARES = {"experiment": 0.5, "plugin": 0.2, "archive": 0.3}

SMALL = f"""\
name: small
plugins: [{UNEVEN}]
datasets: [{{name: uneven, label: first, options: {{shared: true}}, training: {{epochs: 2}}}}, uneven]
methods: [stl, equal, {{name: getmtl, eps: 0.5, label: half}}, {{name: static, weights: [1, 2, 3]}}, dwa]
seeds: [0, 1]
model: {{encoder: {{name: mlp, hidden: [8], activation: relu}}, dropout: 0.1}}
training: {{epochs: 3, batch_size: 16, lr: 1e-2, optimizer: sgd, momentum: 0.5, patience: 2, amp: 'off'}}
resources: {{workers: 1, cpus_per_worker: 1}}
tracking: {{enabled: false}}
baseline: stl
reference: equal
"""
SEARCH = f"""\
name: searched
plugins: [{UNEVEN}]
datasets: [uneven]
methods: [equal, {{architecture: mmoe, balancer: mgda}}, {{name: cagrad, c: 0.2}}, tomato_ex]
model: {{encoder: mlp}}
training: {{epochs: 3, batch_size: 16, optimizer: sgd}}
search:
  budget: 6
  algorithm: grid
  executor: auto
  space: {{training.lr: {{low: 1e-3, high: 1e-1, scale: log, points: 3}}, model.dropout: [0, 0.25]}}
  methods: {{cagrad: {{balancer.c: {{low: 0, high: 0.9}}}}}}
"""
PUBLISHED = """\
source: a table of this test
dataset: uneven
metric: accuracy
tasks: [a, b, c]
methods: {stl: {name: STL, values: [90.0, 80.0, 70.0], printed_average: 80.0}}
"""
OWN = '''\
from typing import ClassVar
import torch
from mtlscale.balancing import Balancer
from mtlscale.encoders import Encoder, EncoderModule
from mtlscale.architectures import Architecture, MultiTaskModule
from mtlscale.config import knob
from torch import nn

class Own(Balancer):
    """Weights of mine."""
    name: ClassVar[str] = "own"
    needs: ClassVar[str] = "gramian"
    heads = "weighted"
    per_task = ("seen",)
    power: float = knob(1.0, low=0.0, high=4.0, search=(0.5, 2.0, "log"), help="of the losses")

    def init(self, tasks, *, seed=0, batch=()):
        return {"seen": torch.zeros(*batch, tasks, dtype=torch.float64)}

    def __call__(self, losses, gramian, state):
        weights = losses ** self.power / gramian.diagonal().sum()
        return weights, {"seen": state["seen"] + 1}

class Flat(Encoder):
    """One layer."""
    name: ClassVar[str] = "flat"
    width: int = knob(4, low=1, help="its size")

    def build(self, suite):
        return FlatModule(suite.input_shape[0], self.width)

class FlatModule(EncoderModule):
    def __init__(self, size, width):
        super().__init__()
        self.layer = nn.Linear(size, width)
        self.features = width

    def forward(self, inputs):
        return self.layer(inputs).relu()
'''
MINE = """\
plugins: [{plugin}, {uneven}]
datasets: [uneven]
methods: [own, {{name: own, power: 2, label: two}}]
model: {{encoder: flat}}
"""
PIPED = """\
plugins: [{plugin}]
datasets: [uneven, {{name: uneven, label: one, options: {{shared: true}}}}]
methods: [equal]
"""


class TooSlow(BaseException):
    """A command that takes longer than anybody waits."""


@contextmanager
def _in_time() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TooSlow(f"more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@functools.cache
def _tree(make: Callable[[], Tree]) -> Tree:
    return make()


def experiment(rng: random.Random, folder: Path, home: Path) -> list[str]:
    path = folder / "x.yaml"
    text = rng.choice([SMALL, SMALL, SEARCH])
    if rng.random() < 0.1:
        (folder / "published.yaml").write_bytes(spoil_experiment(rng, PUBLISHED))
        path.write_text(f"{text}published: published.yaml\n")
    else:
        path.write_bytes(spoil_experiment(rng, text))
    where = ["--home", str(home)]
    command = rng.choice(["run", "run", "run", "sweep", "sweep", "leaderboard", "report", "submit", "sync"])
    match command:
        case "run" | "sweep":
            return [command, str(path), "--dry-run", *where]
        case "submit":
            return [command, str(path), "--address", "http://127.0.0.1:1"]
        case _:
            return [command, str(path), *where]


def plugin(rng: random.Random, folder: Path, home: Path) -> list[str]:
    own, base = folder / "mine.py", rng.choice([OWN, UNEVEN.read_text()])
    own.write_bytes(spoil_program(rng, base))
    path = folder / "x.yaml"
    path.write_text((MINE if base == OWN else PIPED).format(plugin=own, uneven=UNEVEN))
    return ["run", str(path), "--dry-run", "--home", str(folder / "home")]


def archive(rng: random.Random, folder: Path, home: Path) -> list[str]:
    name, options, forms, make = rng.choice(SOURCES)
    source = write_source(rng, _tree(make), forms, folder)
    given = [part for option in options for part in ("--option", option)]
    more = ["--skip-bad"] * (rng.random() < 0.2)
    return ["prepare", name, "--source", str(source), *given, *more, "--home", str(folder / "home")]


KINDS = {"experiment": experiment, "plugin": plugin, "archive": archive}


def attempt(kind: str, seed: int, folder: Path, home: Path) -> str | None:
    """What is wrong with how the command took it; None where it is all right."""
    rng = random.Random(f"{kind}/{seed}")
    arguments = KINDS[kind](rng, folder, home)
    words = f"MTLSCALE_MUTATION={kind}:{seed} ({' '.join(arguments)})"
    try:
        with _in_time():
            done: Done = mtlscale(*arguments)
    except (Exception, TooSlow) as error:
        if ONLY:
            raise
        return f"{words}: {type(error).__name__}: {str(error)[:300]}"
    if ONLY:
        print(words, done)
    if done.code not in (0, 1, 2):
        return f"{words}: exit status {done.code}"
    if done.code == 2 and (
        len(done.stderr.strip().splitlines()) != 1
        or not done.stderr.startswith("mtlscale: ")
        or len(done.stderr) > 2000
    ):
        return f"{words}: {done.stderr[-300:]}"
    left = [path for path in (folder / "home").rglob("*") if path.is_file() and path.parent.name != "logs"]
    if done.code == 2 and left and not (folder / "home" / "data").exists():
        return f"{words}: left {left[:3]}"
    return None


def _cases() -> list[tuple[str, int]]:
    if ONLY:
        kind, _, seed = ONLY.partition(":")
        return [(kind, int(seed))]
    return [(kind, seed) for kind, share in SHARES.items() for seed in range(round(share * COUNT))]


def _together(cases: list[tuple[str, int]], tmp_path: Path, home: Path) -> list[str]:
    found = []
    for kind, seed in cases:
        folder = tmp_path / f"{kind}-{seed}"
        folder.mkdir()
        if (problem := attempt(kind, seed, folder, home)) is not None:
            found.append(problem)
        else:
            shutil.rmtree(folder)
    return found


HALF = round(SHARES["experiment"] * COUNT / 2)
ALL = slice(None)
SLOW = [("archive", ALL), ("plugin", ALL), ("experiment", slice(HALF, None))]  # half a minute each of the first two


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "part"), [("experiment", slice(HALF)), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_no_mutation_gets_a_traceback(kind: str, part: slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MTLSCALE_HOME", str(tmp_path / "outputs"))
    monkeypatch.delenv("MTLSCALE_DATA", raising=False)
    problems = _together([case for case in _cases() if case[0] == kind][part], tmp_path, tmp_path / "shared")
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


@pytest.mark.parametrize("word", ["", "x" * 400, "../x", "Balancers", "\0", "[bold]", "methods "])
def test_names_that_are_none(word: str, tmp_path: Path) -> None:
    for command in (["list", word], ["prepare", word, "--home", str(tmp_path / "home")], ["run", word, "--dry-run"]):
        done = mtlscale(*command)
        assert done.code == 2 and done.stderr.startswith("mtlscale: "), (command, done)
    assert not (tmp_path / "home").exists()
