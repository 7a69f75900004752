"""Check that all nodes of a cluster see the home folder, before anything is run there."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from mtlscale.config import UserError
from mtlscale.execution.faults import busy_machine

PROBE_SECONDS = 60.0  # for all nodes to answer, on an idle machine


def read_mark(path: str) -> str | None:
    """Return the content of the file as a node sees it; None if it sees none."""
    try:
        return Path(path).read_text()
    except OSError:
        return None


def working_nodes() -> list[dict[str, Any]]:
    """Return the nodes of the joined cluster that work can be placed on."""
    import ray

    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]


def several_nodes() -> bool:
    """Return whether work may be placed on another node than this one."""
    import ray

    return not {node["NodeID"] for node in working_nodes()} <= {ray.get_runtime_context().get_node_id()}


def check_shared(folder: Path) -> None:
    """Raise `UserError` with the nodes that do not see a file that this process has just written into the folder.

    Asks every node of the joined cluster that runs can be placed on; a cluster of one node is not asked.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if not several_nodes():
        return

    nodes = working_nodes()
    mark = f".probe-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / mark).write_text(mark)

    ask = ray.remote(num_cpus=0, max_retries=0)(read_mark)
    try:
        answers = {
            ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                str(folder / mark)
            ): node
            for node in nodes
        }
        seconds = PROBE_SECONDS * busy_machine.slowdown()
        ready, silent = ray.wait(list(answers), num_returns=len(answers), timeout=seconds)
        blind = [answers[ref] for ref in ready if _answer(ref) != mark]
    finally:
        (folder / mark).unlink(missing_ok=True)

    if blind:
        raise UserError(
            f"{folder} is not shared: node{'s' * (len(blind) > 1)} {_names(blind)} "
            f"do{'es' * (len(blind) == 1)} not see what {os.uname().nodename} writes there; "
            "name a --home on storage that all nodes mount"
        )
    if silent:
        raise UserError(
            f"{_names([answers[ref] for ref in silent])} did not say within {seconds:.0f} s whether {folder} is "
            "shared; is its storage up?"
        )


def _answer(ref: object) -> object:
    """Return a node's answer, None only if it answered so; a node that is lost meanwhile is Ray's business."""
    import ray

    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        return f"{type(error).__name__}"


def _names(nodes: list[dict[str, str]]) -> str:
    return ", ".join(f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})" for node in nodes)
