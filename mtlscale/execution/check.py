"""Whether method, network and data go together: tried on networks without values, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.execution.plan import Plan
from mtlscale.spec import Run, UserError, from_plugin, plugin_error

if TYPE_CHECKING:
    from mtlscale.spec import TaskSuite

_FILES = ("vectors", "weights")  # knobs of encoders that name a file, which is not read here


def check_goes_together(plan: Plan, runs: Iterable[Run]) -> None:
    """`UserError` names the first method that cannot be trained on a data set; runs that differ in their seeds alone
    are looked at once."""
    suites: dict[str, TaskSuite] = {}
    seen: set[tuple[str, str]] = set()
    for run in runs:
        if (run.dataset, run.method) in seen:
            continue
        seen.add((run.dataset, run.method))
        if run.data not in suites:
            suites[run.data] = _suite(plan.folders[run.data], run)
        try:
            _check(run, suites[run.data], shared=plan.home is None or plan.home.storage is None)
        except UserError as error:
            raise UserError(f"{run.method} on {run.dataset}: {error}") from None


def parameters(run: Run, folder: Path) -> int | None:
    """How many parameters its network has, built without values; None where that cannot be said so."""
    import torch

    from mtlscale.training import build_model

    try:
        with torch.device("meta"):
            model, _ = build_model(_without_files(run, False), _suite(folder, run), run.parts.phases[-1])
    except Exception:  # a network that looks at its own values, or at what an earlier phase has found
        return None
    return sum(parameter.numel() for parameter in model.parameters()) + model.learned()


def _suite(folder: Path, run: Run) -> TaskSuite:
    from mtlscale.data import load_prepared
    from mtlscale.data.views import narrowed

    return narrowed(load_prepared(folder).suite, run.tasks)


def _check(run: Run, suite: TaskSuite, *, shared: bool) -> None:
    """shared: whether the nodes that train see this one's files."""
    import torch

    from mtlscale.training import Augment, check_evaluation

    run = _without_files(run, shared)
    Augment.of(run.training.augment, suite, run.seed)
    check_evaluation(run.evaluation, suite)
    parts = run.parts
    try:
        with torch.device("meta"):
            _build(run, suite)
    except UserError:
        raise
    except Exception:  # a network that looks at its own values while it is built
        try:
            _build(run, suite)
        except UserError:
            raise
        except Exception as error:
            raise _told((parts.architecture, parts.encoder, parts.objective), error) from error
    _check_balancer(parts.balancer, len(suite.tasks))


def _build(run: Run, suite: TaskSuite) -> None:
    import torch

    from mtlscale.training import Update, build_model, partition_of

    phase = run.parts.phases[0]
    model, objective = build_model(run, suite, phase)
    for turn in phase.turns:
        if turn.source == "tasks":
            names, device = [task.name for task in suite.tasks], torch.device("cpu")
            partition = partition_of(model, suite, objective, turn, phase)
            Update(names, partition, turn.balancer or run.parts.balancer, device=device, state={})
    if objective is not None and objective.whole_step and run.training.accumulate > 1:
        raise UserError(f"{run.parts.objective.name} looks at a whole step at once: set accumulate to 1")


def _check_balancer(balancer: Any, tasks: int) -> None:
    from mtlscale.balancing import rehearsal

    if from_plugin(balancer):
        rehearsal(balancer, tasks)
    elif not hasattr(balancer, "from_data"):
        balancer.init(tasks, seed=0)


def _told(parts: Iterable[Any], error: Exception) -> Exception:
    """What a network's code has raised: of a plugin with its place, of a shipped one in one line."""
    for part in parts:
        if part is not None and (told := plugin_error(type(part), error)) is not None:
            return told
    text = (str(error).splitlines() or [""])[0]
    return UserError(
        f"the network cannot be built ({type(error).__name__}: {text}); lower its sizes or mend its options"
    )


def _without_files(run: Run, shared: bool) -> Run:
    """The run with an encoder that reads no file; `UserError` where one it names is not there."""
    encoder = run.parts.encoder
    named = {field.name: getattr(encoder, field.name) for field in fields(encoder) if field.name in _FILES}
    files = {name: value for name, value in named.items() if isinstance(value, str) and value != "prepared"}
    for name, value in files.items():
        if shared and not Path(value).is_file():
            raise UserError(f"{encoder.name}: {name}: {value} is not a file; correct or drop it")
    if not files:
        return run
    changed = run.model_copy()
    changed.__dict__["parts"] = replace(run.parts, encoder=replace(encoder, **dict.fromkeys(files)))
    return changed
