"""The live page, asked for through a real server by http.client."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import refused

from mtlscale.cli.commands.live_page import HOST, Watched, serving
from mtlscale.config import Experiment, Run, fingerprint_with, load_experiment
from mtlscale.execution.planning.status import write_plan
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.records.board import Wanted

NAMES = {"accuracy": True}


@pytest.fixture
def experiment() -> Experiment:
    return load_experiment("quickstart", ("seeds=[0,1]", "methods=[stl,equal]"))


@pytest.fixture
def runs(experiment: Experiment) -> list[Run]:
    return list(experiment.runs(dict.fromkeys(experiment.data(), fingerprint_with("f00d", NAMES))))


def ended(run: Run, score: float = 90.0, **fields: Any) -> RunRecord:
    metrics = {"test": {"a": {"accuracy": score}}, "val": {"a": {"accuracy": score, "loss": 1.0}}}
    known: dict[str, Any] = {
        "status": "finished",
        "metrics": metrics,
        "fingerprint": "f00d",
        "higher_is_better": NAMES,
        "main_metrics": {"a": "accuracy"},
        "spec": run.spec,
        "finished": "2026-01-02T03:04:05+00:00",
    }
    label = {"run_id": run.run_id, "experiment": run.experiment, "dataset": run.dataset, "method": run.method}
    return RunRecord(**{"seed": run.seed, **label, **known, **fields})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def ask(experiment: Experiment, home: Home) -> Iterator[Callable[..., tuple[int, str]]]:
    with serving(Watched(experiment, home)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def asked(path: str, host: str = f"{HOST}:{server.server_port}") -> tuple[int, str]:
            connection = http.client.HTTPConnection(HOST, server.server_port, timeout=60)
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        yield asked
        server.shutdown()


def test_it_waits_and_then_shows_every_run_that_ends(
    ask: Callable[..., tuple[int, str]], home: Home, runs: list[Run]
) -> None:
    status, page = ask("/")
    assert status == 200 and "No run has ended yet" in page and 'data-live="none" data-waiting' in page
    assert json.loads(ask("/state.json")[1]) | {"said": ""} == {
        **{"results": "none", "runs": 0, "done": 0, "failed": 0, "diverged": 0, "left": 0, "last": "", "said": ""}
    }
    write_plan(home, "quickstart", [Wanted.of(run) for run in runs])
    ledger = Ledger(home.ledger("quickstart"))
    ledger.append(ended(runs[0]))
    first = json.loads(ask("/state.json")[1])
    assert (first["runs"], first["done"], first["left"]) == (len(runs), 1, len(runs) - 1)
    assert first["said"].startswith(f"1 of {len(runs)} runs done")
    _, page = ask("/")
    assert f'data-live="{first["results"]}"' in page and "1 of 1 run finished" in page
    ledger.append(ended(runs[1], status="failed", error="out of memory", metrics={}))
    second = json.loads(ask("/state.json")[1])
    assert second["results"] != first["results"] and second["failed"] == 1 and "1 failed" in second["said"]
    assert "out of memory" in ask("/")[1]


def test_records_of_other_settings_make_it_wait_without_loading_again_and_again(
    ask: Callable[..., tuple[int, str]], home: Home, runs: list[Run]
) -> None:
    Ledger(home.ledger("quickstart")).append(ended(runs[0], run_id="another"))
    _, page = ask("/")
    assert "No run has ended yet" in page and f'data-live="{json.loads(ask("/state.json")[1])["results"]}"' in page


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1:1", "127.0.0.1.evil.example", ""])
def test_only_this_machines_own_names_are_answered(ask: Callable[..., tuple[int, str]], host: str) -> None:
    for path in ("/", "/state.json"):
        status, text = ask(path, host)
        assert status == 421 and "mtlscale</title>" not in text and "results" not in text


def test_there_is_nothing_else(ask: Callable[..., tuple[int, str]]) -> None:
    assert ask("/../../etc/passwd")[0] == ask("/ledger.jsonl")[0] == 404
    assert ask("/?again")[0] == 200


def test_a_port_that_is_taken_is_said_in_a_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        line = refused("watch", "quickstart", "--port", str(taken.getsockname()[1]), "--home", tmp_path)
    assert "in use" in line and "0 for a free one" in line


def test_an_experiment_that_is_not_there_is_said_in_a_line() -> None:
    assert "quickstrat" in refused("watch", "quickstrat")


def test_it_says_where_it_is_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mtlscale.cli", "watch", "quickstart", "--home", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith(f"http://{HOST}:") and line.endswith("/\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=240) == 0 and "Traceback" not in process.stderr.read()
    assert not list(tmp_path.iterdir())
