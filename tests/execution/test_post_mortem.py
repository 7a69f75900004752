"""A worker that dies says why: processes that are really killed, leave, crash or run out of memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import Experiment, ResourceSpec, Run
from mtlscale.data.readers.prepared import PreparedData
from mtlscale.execution import ActorStart, Job, Options, execute_jobs
from mtlscale.execution.faults.post_mortem import Birth, cause_of_death, first_line, in_one_line, node_died
from mtlscale.records.events import RunEnded

PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"
WORKER = """
import faulthandler, json, os, signal, sys
from mtlscale.execution.faults.post_mortem import note_birth
faulthandler.enable()
print(":job_id:01000000", file=sys.stderr)
birth = note_birth()
print(json.dumps(birth), flush=True)
print("loading the data", file=sys.stderr, flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        (
            "os._exit(7)",
            7,
            "it ended without a word, as by SIGKILL or os._exit; the last lines of its log: loading the data",
        ),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            -signal.SIGKILL,
            "it ended without a word, as by SIGKILL or os._exit; the last lines of its log: loading the data",
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV, "fatal error: Segmentation fault; the last lines"),
    ],
)
def test_the_way_a_process_ended_is_found_in_its_log(end: str, status: int, said: str, tmp_path: Path) -> None:
    log = tmp_path / "worker.err"
    log.write_text("what another worker wrote into it\n")
    with log.open("a") as stderr:
        done = subprocess.run(
            [sys.executable, "-c", WORKER.format(end=end)], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert done.returncode == status
    birth = Birth(*json.loads(done.stdout))
    assert birth.log == str(log)
    text = in_one_line("", [cause_of_death(birth)])
    assert text.startswith(said) and "another worker" not in text and "\n" not in text


def test_what_ray_knows_is_used() -> None:
    code = "The actor died.\n\tpid: 1\nWorker exit detail: Worker exits unexpectedly. Worker exits with an exit code 3."
    assert in_one_line(code, [("", "")]) == "it ended with exit code 3"
    assert first_line(code) == "Worker exits unexpectedly. Worker exits with an exit code 3."
    init = (
        "The actor died because of an error raised in its creation task, ray::X()\n  File x\nValueError: no such plugin"
    )
    assert in_one_line(init, []) == "ValueError: no such plugin"
    assert node_died("The actor died because its node has died. Node Id: a")
    assert not node_died(code)


DIES = """
import os, resource, signal
from typing import ClassVar

import torch

from mtlscale.balancing import Balancer
from mtlscale.config import knob


class Dies(Balancer):
    name: ClassVar[str] = "dies"
    how: str = knob("kill", choices=("kill", "exit", "memory"))

    def rehearse(self):
        pass

    def __call__(self, losses, gramian, state):
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "exit":
            os._exit(7)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
        return torch.zeros(1 << 30).exp(), state
"""


@pytest.mark.slow
@pytest.mark.ray
def test_runs_whose_workers_die_fail_with_the_reason(
    small: Callable[..., Experiment],
    uneven: Callable[..., PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
    tmp_path: Path,
    local_ray: None,
) -> None:
    plugin = tmp_path / "dies.py"
    plugin.write_text(DIES)
    data = uneven(shared=False)
    jobs = {}
    for how in ("kill", "exit", "memory"):
        methods = f"[{{name: dies, label: {how}, how: {how}}}]"
        run = run_of(small(methods=methods, plugins=f"[{PLUGIN}, {plugin}]"), data)
        jobs[how] = Job(run, data.folder, tmp_path / run.run_id)

    options = Options(ResourceSpec(max_failures=1), plugins=(str(PLUGIN), str(plugin)))
    events = execute_jobs(list(jobs.values()), 2, options, ActorStart(options, "small"))
    errors = {event.record.method: str(event.record.error) for event in events if isinstance(event, RunEnded)}
    for how in ("kill", "exit"):
        assert errors[how].startswith("its worker died 2 times: it ended without a word, as by SIGKILL"), errors
    assert "can't allocate memory" in errors["memory"], errors
    assert not any("\n" in error for error in errors.values())
