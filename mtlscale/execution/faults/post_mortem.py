"""Why a worker process died: its exit code, the signal, the limit of its memory, and the last lines of its log.

Ray says only that the connection to the process has ended. What it died of is on its node: in its log, which has the
traces of fatal signals, and in the kernel's counters.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
from pathlib import Path
from typing import NamedTuple

from mtlscale.data.memory_limits import address_space, cgroup_memory, kills
from mtlscale.data.readers.cache import in_words

_LOG_BYTES = 50_000  # of the end of a log
_LINES, _CHARACTERS = 3, 300  # of a log in a message
_RAYS_OWN = re.compile(r":(job_id|actor_name|task_name):|\[\d{4}-\d\d-\d\d .* [EIW] ")
_FATAL = re.compile(r"\*\*\* (SIG[A-Z]+) received|Fatal Python error: (.+)")
_EXIT_CODE = re.compile(r"exit code (-?\d+)")
_NODE_DIED = re.compile(r"node (has )?died|node failure|preempt", re.IGNORECASE)


class Birth(NamedTuple):
    """The state of a worker's node and log when the worker started."""

    log: str = ""  # file of its standard error; "" if that is no file
    size: int = 0  # of the log
    kills: int = 0  # processes of its control group that the kernel has killed for memory
    node_kills: int = 0  # likewise, of its whole node
    limit: str = ""  # of its memory, in words


def note_birth() -> Birth:
    """Return the state of this worker's node and log now, which `cause_of_death` compares with."""
    log, size = "", 0
    with contextlib.suppress(OSError):
        path = Path("/proc/self/fd/2").resolve()
        if path.is_file():
            log, size = str(path), path.stat().st_size
    return Birth(log, size, kills(), _node_kills(), _limit())


def cause_of_death(birth: Birth) -> tuple[str, str]:
    """Return what a worker died of, "" if there is no sign of it, and the last lines of its log.

    Call it on the worker's node.
    """
    text = _end_of(birth)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _RAYS_OWN.match(line)]

    cause = ""
    if fatal := _FATAL.search(text):
        cause = f"signal {fatal[1]}" if fatal[1] else f"fatal error: {fatal[2]}"
    elif kills() > birth.kills:
        cause = f"SIGKILL from the kernel: its control group was out of memory{_in_brackets(birth.limit)}"
    elif _node_kills() > birth.node_kills:
        cause = f"SIGKILL, and the kernel killed for memory on its node meanwhile{_in_brackets(birth.limit)}"

    told_lines = [line for line in lines if not line.startswith("Extension modules:")]
    shown = " | ".join(told_lines[-_LINES:])
    return cause, shown if len(shown) <= _CHARACTERS else f"… {shown[-_CHARACTERS:]}"


def in_one_line(ray_says: str, births: list[tuple[str, str]], limit: str = "") -> str:
    """Return why workers died.

    Args:
        ray_says: Ray's text on it, or the exception of a worker.
        births: The findings of `cause_of_death`, one per worker that may have been the first to die.
        limit: The limit of the workers' memory, in words.
    """
    cause = next((found for found, _ in births if found), "")
    log = next((lines for found, lines in births if found == cause and lines), "")
    code = _EXIT_CODE.search(ray_says)
    if not cause and code is not None:
        cause = f"it ended with exit code {code[1]}"
    if not cause and births:
        cause = f"it ended without a word, as by SIGKILL or os._exit{_in_brackets(limit)}"
    if not cause:
        cause = first_line(ray_says)
    return f"{cause}; the last lines of its log: {log}" if log else cause


def first_line(ray_says: str) -> str:
    """Return the line of an error of Ray's that says most: an exception's own, which Ray puts last."""
    lines = [line.strip() for line in ray_says.splitlines() if line.strip()]
    if not lines:
        return ""
    raised = "creation task" in lines[0]
    detail = next((line for line in lines if "exit detail" in line), "")
    text = lines[-1] if raised else detail.partition("Worker exit detail: ")[2].partition(" Some common")[0] or lines[0]
    return text[:_CHARACTERS]


def node_died(ray_says: str) -> bool:
    """Return whether Ray says that the worker's node is gone, so that nobody can look there."""
    return _NODE_DIED.search(ray_says) is not None


def _end_of(birth: Birth) -> str:
    """Return the end of what a worker has written into its log."""
    try:
        with Path(birth.log).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(birth.size, size - _LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _node_kills() -> int:
    """Return how many processes of this node the kernel has killed for memory."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _limit() -> str:
    """Return the limits of this process's memory in words, "" if there are none."""
    texts = []
    if (group := cgroup_memory()) is not None:
        texts.append(f"its control group may use {in_words(group.limit)}")
    if (space := address_space()) is not None:
        texts.append(f"its address space is limited to {in_words(space[0])}")
    data_limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if data_limit != resource.RLIM_INFINITY:
        texts.append(f"its data are limited to {in_words(data_limit)}")
    return ", ".join(texts)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""
