"""Check that method, network and data fit together, on networks without values, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.config import Experiment, Run, UserError, from_plugin, plugin_error
from mtlscale.execution.planning.plan import Datasets, Plan, make_plan
from mtlscale.records import Home, Storage, restore

if TYPE_CHECKING:
    from mtlscale.config import TaskSuite

_FILES = ("vectors", "weights")  # knobs of encoders that name a file, which is not read here


def plan_runs(experiment: Experiment, runs: Iterable[Run], home: Home, data: Datasets) -> Plan:
    """Plan these runs, including those that finished in another home."""
    runs = list(runs)
    if home.storage is not None:
        restore(Storage(home.storage), (home.run(run.run_id) for run in runs))
    the_plan = make_plan(experiment, runs, home.ledger(experiment.name), home, data)
    check_goes_together(the_plan, the_plan.todo)
    return the_plan


def check_goes_together(plan: Plan, runs: Iterable[Run]) -> None:
    """Raise `UserError` for the first method that cannot be trained on its data set.

    Runs that differ only in their seeds are checked once.
    """
    checked_pairs: set[tuple[str, str]] = set()
    suites: dict[str, TaskSuite] = {}

    for run in runs:
        if (run.dataset, run.method) in checked_pairs:
            continue
        checked_pairs.add((run.dataset, run.method))
        if run.data not in suites:
            suites[run.data] = plan.data.on_disk(run.data).suite
        try:
            _check(run, suites[run.data], shared=plan.board.home is None or plan.board.home.storage is None)
        except UserError as error:
            raise UserError(f"{run.method} on {run.dataset}: {error}") from None


def weight_notes(runs: Iterable[Run]) -> Iterator[str]:
    """Yield a line for each balancer of the user's whose weights are negative, or sum to far more or less than 1."""
    import torch

    from mtlscale.balancing import JacobianBalancer, ValidationBalancer

    balancers = {run.method: run.parts.balancer for run in runs if from_plugin(run.parts.balancer)}
    for method, balancer in balancers.items():
        if isinstance(balancer, JacobianBalancer | ValidationBalancer) or balancer.needs == "modules":
            continue
        losses = torch.ones(_TASKS, dtype=torch.float64)
        gramian = None if balancer.needs == "losses" else torch.eye(_TASKS, dtype=torch.float64)
        try:
            weights, _ = balancer(losses, gramian, balancer.init(_TASKS, seed=0))
            total, least = float(weights.sum()), float(weights.min())
        except Exception:  # with this number of tasks; the run itself will say so
            continue
        if least < 0:
            yield f"{method}: a weight of {_TASKS} equal losses is negative ({least:.3g}): a step raises that loss"
        elif not 0.1 <= total <= 10:
            yield (
                f"{method}: the weights of {_TASKS} equal losses sum to {total:.4g}, those of equal to 1: its steps "
                "are as much longer or shorter"
            )


_TASKS = 3  # of made-up losses


def _check(run: Run, suite: TaskSuite, *, shared: bool) -> None:
    """Check a run against its suite; `shared` tells whether the nodes that train see this node's files."""
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
    except Exception:  # a network that reads its own values while it is built
        try:
            _build(run, suite)
        except UserError:
            raise
        except Exception as error:
            raise _network_error((parts.architecture, parts.encoder, parts.objective), error) from error

    _check_balancer(parts.balancer, len(suite.tasks))


def _build(run: Run, suite: TaskSuite) -> None:
    import torch

    from mtlscale.training import Update, build_model, partition_of

    phase = run.parts.phases[0]
    model, objective = build_model(run, suite, phase)
    if objective is None and model.needs_target:
        raise UserError(model.needs_target)

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


def _network_error(parts: Iterable[Any], error: Exception) -> Exception:
    """Return the error for an exception of a network's code: a plugin's place, or one line for a shipped component."""
    for part in parts:
        if part is not None and (located_error := plugin_error(type(part), error)) is not None:
            return located_error
    text = (str(error).splitlines() or [""])[0]
    return UserError(
        f"the network cannot be built ({type(error).__name__}: {text}); lower its sizes or mend its options"
    )


def _without_files(run: Run, shared: bool) -> Run:
    """Return the run with an encoder that reads no file; raise `UserError` if a shared file does not exist."""
    encoder = run.parts.encoder
    file_options = {field.name: getattr(encoder, field.name) for field in fields(encoder) if field.name in _FILES}
    files = {name: value for name, value in file_options.items() if isinstance(value, str) and value != "prepared"}

    for name, value in files.items():
        if shared and not Path(value).is_file():
            raise UserError(f"{encoder.name}: {name}: {value} is not a file; correct or drop it")

    if not files:
        return run

    copied_run = run.model_copy()
    copied_run.__dict__["parts"] = replace(run.parts, encoder=replace(encoder, **dict.fromkeys(files)))
    return copied_run
