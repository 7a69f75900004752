"""Hyperparameter search (a sweep): which trials there are, which are done, how the others are run.

Every trial is an ordinary run with the seed of the search, so it has a run id and a record, is run once, and goes on
from its checkpoint. Records go to a ledger of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mtlscale.config import (
    EvaluationSpec,
    Experiment,
    Knobs,
    Run,
    SearchSpec,
    UserError,
    belongs,
    budget_of,
    check_metric,
    nearest,
    space_of,
    trials,
)
from mtlscale.data.format.manifest import Manifest
from mtlscale.execution.planning.check import check_goes_together
from mtlscale.execution.planning.plan import Datasets, Plan, make_plan
from mtlscale.execution.planning.reader_report import processes_per_node, reading
from mtlscale.execution.tuning.planned_search import execute_planned
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Board, Home, Ledger, RunRecord, Score, Wanted, best, score
from mtlscale.records.events import Planned, RunBegun, RunEnded, RunEvent

Key = tuple[str, str]  # dataset and method


Trials = Mapping[Key, tuple[RunRecord, ...]]  # by data set and method, in the order they were tried


@dataclass(frozen=True)
class SweepPlan:
    """The trials of an experiment's search and their states; of one that adapts to results, those there are."""

    plan: Plan
    search: SearchSpec
    bases: tuple[Run, ...]
    items: tuple[Job | Batched, ...]  # what the workers take from the queue
    reasons: tuple[str, ...] = ()  # why it is cut that way
    firsts: Mapping[Key, Key] = field(default_factory=dict)  # a method and data set -> that which has the same trials

    @property
    def total(self) -> int:
        """The number of trials when the search is over."""
        if not self.search.adaptive:
            return len(self.plan.board.distinct)
        return sum(budget_of(self.search, base) for base in self.distinct)

    @property
    def distinct(self) -> list[Run]:
        """The bases that are searched for: of one under several labels, the first."""
        return [base for base in self.bases if self.firsts.get(_key(base), _key(base)) == _key(base)]

    @property
    def jobs(self) -> int:
        """The number of workers that can have something to do at once."""
        return self.total if self.search.adaptive else len(self.items)

    @property
    def complete(self) -> bool:
        board = self.plan.board
        return len(board.distinct) - len(board.missing) >= self.total

    def of(self, base: Run) -> list[Wanted]:
        """Return the trials of one dataset and method."""
        return [trial for trial in self.plan.board.wanted if (trial.dataset, trial.method) == _key(base)]

    def planned(self, slots: int) -> Planned:
        """Return the event with which the trials begin."""
        epochs = [base.epochs for base in self.bases]
        mean_epochs, lines = sum(epochs) // len(epochs), tuple(self.explain())
        return Planned(self.plan.experiment.name, self.plan.board, slots, self.total, self.search, lines, mean_epochs)

    def explain(self) -> list[str]:
        """Return how the trials that are not done will be executed, and how they read their data."""
        if self.complete:
            return ["all trials are done", *self._earlier()]
        reading_lines = (f"{name}: {text}" for name, text in reading(self.plan))
        return [*self._earlier(), *self._two_values(), *self._executed(), *reading_lines]

    def _earlier(self) -> list[str]:
        """Return a line on trials of other settings that the home has: the space, or the data, were changed."""
        count = len(self.plan.board.others)
        trials = f"{count} trials" if count > 1 else "a trial"
        return (
            [f"{trials} of an earlier space or other settings in this home: records, which do not count"]
            if count
            else []
        )

    def _two_values(self) -> list[str]:
        """Return a line on each list of two numbers, which may be meant as the ends of a range."""
        space = {path: dimension for base in self.bases for path, dimension in space_of(self.search, base).items()}
        pairs = {
            path: dimension.choices
            for path, dimension in space.items()
            if path in self.search.space and dimension.choices is not None and len(dimension.choices) == 2
        }
        return [
            f"{path}: 2 values, {low:g} and {high:g}; a range is {{low: {low:g}, high: {high:g}, scale: log}}"
            for path, (low, high) in pairs.items()
            if isinstance(low, float) and isinstance(high, float) and 0 < low < high
        ]

    def _executed(self) -> list[str]:
        if self.search.adaptive:
            names = {"optuna": "Optuna", "nsga2": "NSGA-II", "random": "random search", "grid": "grid search"}
            scheduler = "" if self.search.scheduler == "none" else f" with {self.search.scheduler}"
            lanes = (
                ""
                if len(self.bases) == 1 or self._one_at_a_time
                else f", up to {len(self.bases)} searches side by side"
            )
            return [
                f"{names[self.search.algorithm]}{scheduler} through Ray Tune, trials one by one on warm actors{lanes}"
            ]
        workers = self.plan.experiment.resources.workers
        per_trial = f", each on {workers} workers" if workers > 1 else ""
        return [*self.reasons] or [f"{len(self.items)} trials through Ray Tune, one by one on warm actors{per_trial}"]

    @property
    def _one_at_a_time(self) -> bool:
        """True if one search has all slots: the members of a population are compared while they train."""
        return self.search.scheduler == "pbt"

    def lanes(self, slots: int, searches: int) -> list[int]:
        """Return how many trials each of the searches that run side by side has at once."""
        count = 1 if self._one_at_a_time else max(1, min(searches, slots))
        return [max(1, slots // count + (lane < slots % count)) for lane in range(count)]

    def score(self, record: RunRecord) -> Score | None:
        return score(record, self.search.metric)

    def result(self) -> Trials:
        """Return the records of all trials that have ended, under every label that shares them."""
        board = self.plan.board
        trials: dict[Key, list[RunRecord]] = {_key(base): [] for base in self.bases}
        if self.search.adaptive:
            for record in board.ended:
                for key in (key for key, first in self.firsts.items() if first == (record.dataset, record.method)):
                    trials[key].append(record.model_copy(update=dict(zip(("dataset", "method"), key, strict=True))))
        else:
            for record in board.records:
                trials[record.dataset, record.method].append(record)
        return {key: tuple(records) for key, records in trials.items()}


def winners(trials: Trials, metric: str | None) -> dict[Key, Knobs]:
    """Return the settings of the best trial of each method and data set that has one."""
    chosen = {key: best(records, metric) for key, records in trials.items()}
    return {key: dict(winner.trial) for key, winner in chosen.items() if winner is not None}


def untrained(runs: Iterable[Run], trials: Trials, metric: str | None) -> list[RunEnded]:
    """Return the ends of runs that cannot be trained: no trial of their method has finished, so it has no winner."""
    causes = {
        key: f"none of its {len(records)} trials finished: {records[0].error if records else 'there are none'}"
        for key, records in trials.items()
        if best(records, metric) is None
    }
    return [RunEnded(run.run_id, failed(run, causes[_key(run)])) for run in runs if _key(run) in causes]


def plan_sweep(experiment: Experiment, home: Home, data: Datasets) -> SweepPlan:
    """Draw the trials and say of each whether it is done.

    Raises:
        UserError: For what cannot be searched, or trained.
    """
    search = experiment.search
    assert search is not None

    search.check_installed()
    for manifest in data.manifests.values():
        check_metric(search, manifest.suite)
    check_objectives(search, experiment, data.manifests)

    bases, ledger = experiment.bases(data.fingerprints), home.trials(experiment.name, search.ledger)
    firsts = _firsts(search, bases)
    runs = _trials(search, bases, firsts, Ledger(ledger).latest().values())

    the_plan = make_plan(experiment, runs, ledger, home, data)
    sweep_plan = SweepPlan(the_plan, search, tuple(bases), (), firsts=firsts)
    if not sweep_plan.complete:
        check_goes_together(the_plan, bases)

    items, reasons = ([], []) if search.adaptive else _items(the_plan, home, search)
    return replace(sweep_plan, items=tuple(items), reasons=tuple(reasons))


def winners_so_far(experiment: Experiment, home: Home, fingerprints: Mapping[str, str]) -> dict[Key, Knobs] | None:
    """Return the settings that the trials which are done choose, without preparing or starting anything.

    None if the home has no trials, neither of the search as it is now nor of an earlier one.
    """
    search = experiment.search
    assert search is not None

    bases, ledger = experiment.bases(fingerprints), Ledger(home.trials(experiment.name, search.ledger))
    firsts, rows = _firsts(search, bases), ledger.latest()
    wanted = map(Wanted.of, _trials(search, bases, firsts, rows.values()))
    board = Board(wanted, ledger, home, rows)
    if not board.records and not ledger.path.is_file():
        return None

    for record in board.unlisted():  # of tasks of a job array, and of other experiments
        board.rows[record.run_id] = record
    so_far = SweepPlan(Plan(experiment, board, Datasets({}, {})), search, tuple(bases), (), firsts=firsts)
    return winners(so_far.result(), search.metric)


def check_objectives(search: SearchSpec, experiment: Experiment, manifests: Mapping[str, Manifest]) -> None:
    """Raise `UserError` for an objective that no run of a data set will have."""
    from mtlscale.metrics import FIGURES
    from mtlscale.metrics.objectives import PARAMETERS

    for prepared, (dataset, _) in experiment.data().items():
        metrics = [set(task.metrics) for task in manifests[prepared].suite.tasks]
        available = {"loss", PARAMETERS, *set.intersection(*metrics), *asked_of(dataset.evaluation)}
        for objective in search.objectives:
            if objective not in available:
                advice = f"ask for it in the `evaluation` of {dataset.label}" if objective in FIGURES else nearest(
                    objective, sorted(available)
                )  # fmt: skip
                raise UserError(f"search.objectives: runs on {dataset.label} have no {objective!r}; {advice}")


def asked_of(evaluation: EvaluationSpec | None) -> set[str]:
    """Return the names of the extra measures that an evaluation gives."""
    if evaluation is None:
        return set()
    measures = {"pgd_accuracy"} if evaluation.pgd is not None else set()
    measures |= {"ood_auroc", "ood_aupr", "ood_aupr_inverted"} if evaluation.ood else set()
    return measures | ({"flops"} if evaluation.flops else set()) | (
        {"latency_ms", "throughput"} if evaluation.latency else set()
    )  # fmt: skip


def _key(run: Run) -> Key:
    return run.dataset, run.method


def _firsts(search: SearchSpec, bases: Sequence[Run]) -> dict[Key, Key]:
    """Return each method and data set -> the first with the same spec and space, which has the same trials."""
    firsts: dict[Key, Key] = {}
    spaces: dict[str, list[tuple[Key, object]]] = {}
    for base in bases:
        space = space_of(search, base)
        same_spec = spaces.setdefault(base.run_id, [])
        firsts[_key(base)] = next((key for key, other_space in same_spec if other_space == space), _key(base))
        same_spec.append((_key(base), space))
    return firsts


def _relabelled(run: Run, key: Key) -> Run:
    """Return the same run under another label."""
    copied = run.model_copy(update=dict(zip(("dataset", "method"), key, strict=True)))
    copied.__dict__["parts"] = run.parts  # built once
    return copied


def _interleaved(search: SearchSpec, bases: list[Run], firsts: Mapping[Key, Key]) -> list[Run]:
    """Return the first trial of every method, then the second: all are compared from early on."""
    of_first = {_key(base): trials(search, base) for base in bases if firsts[_key(base)] == _key(base)}
    drawn = [[_relabelled(run, _key(base)) for run in of_first[firsts[_key(base)]]] for base in bases]
    return [runs[index] for index in range(search.budget) for runs in drawn if index < len(runs)]


def _trials(search: SearchSpec, bases: list[Run], firsts: Mapping[Key, Key], rows: Iterable[RunRecord]) -> list[Run]:
    """Return the trials of a search; of one that adapts to results, those that its ledger has."""
    return _tried(search, bases, rows) if search.adaptive else _interleaved(search, bases, firsts)


def _tried(search: SearchSpec, bases: list[Run], rows: Iterable[RunRecord]) -> list[Run]:
    """Return the ledger's trials that lie in the search's present space; others are records, and count for nothing."""
    of_key = {(base.dataset, base.method): base for base in bases}
    runs = {}
    for record in rows:
        base = of_key.get((record.dataset, record.method))
        if base is not None and belongs(search, base, record.trial):
            run = base.tuned(record.trial)
            if run.run_id == record.run_id:
                runs[run.run_id] = run
    return list(runs.values())


def _items(the_plan: Plan, home: Home, search: SearchSpec) -> tuple[list[Job | Batched], list[str]]:
    """Return what the workers take from the queue, the costliest first, and the reasons why it is cut that way."""

    def job(run: Run) -> Job:
        return Job(run, the_plan.data.folders[run.data], home.run(run.run_id))

    resources = the_plan.experiment.resources
    if search.executor == "tune" or resources.workers > 1 or not the_plan.todo:
        return [job(run) for run in the_plan.todo], []

    from mtlscale.batched.eligibility.decision import decide
    from mtlscale.batched.eligibility.planning import groups

    workers = processes_per_node(resources)
    single = [run for run in the_plan.todo if the_plan.board.resumes(run.run_id)]
    fresh = [run for run in the_plan.todo if not the_plan.board.resumes(run.run_id)]

    queue: list[tuple[float, Job | Batched]] = []
    reasons = []
    unbatched_counts: Counter[tuple[str, str]] = Counter()  # label and reason -> how many run one by one
    for group in groups(fresh):
        run = group[0]
        label, steps = f"{run.dataset} · {run.method}", the_plan.steps(run)
        decision = decide(
            group,
            the_plan.data.on_disk(run.data),
            trials=len(fresh),
            processes=workers,
            required=search.executor == "batched",
        )

        if not decision.shares:
            single += group
            unbatched_counts[label, decision.reason] += len(group)
            continue

        seconds = decision.seconds * steps
        queue += [(seconds * len(share), Batched(tuple(map(job, share)))) for share in decision.shares]
        sizes = " + ".join(str(len(share)) for share in decision.shares)
        reasons.append(f"{label}: {len(group)} trials batched, {sizes} at a time: {decision.reason}")

    reasons += [f"{label}: {count} trials one by one ({why})" for (label, why), count in unbatched_counts.items()]
    queue.sort(key=lambda entry: -entry[0])
    return [item for _, item in queue] + [job(run) for run in single], reasons


Execute = Callable[[Sequence[Job | Batched]], Iterator[RunEvent]]
# Executes jobs, but leaves runs to other drivers that train them already.
ShareOut = Callable[[Sequence[Job | Batched], Execute], Iterator[RunEvent]]


def execute_sweep(
    sweep: SweepPlan, home: Home, slots: int, options: Options, share_out: ShareOut
) -> Iterator[RunEvent | RunBegun]:
    """Run the trials that are not done, and yield the events of each."""
    options = replace(options, models=False)
    if sweep.search.adaptive:
        yield from _tuned(sweep, home, slots, options)
    else:
        folder = home.experiment(sweep.plan.experiment.name) / "tune"
        metric = sweep.search.metric
        yield from share_out(sweep.items, lambda items: execute_planned(items, slots, options, folder, metric))


def _tuned(sweep: SweepPlan, home: Home, slots: int, options: Options) -> Iterator[RunEvent | RunBegun]:
    """Run a search by Ray Tune for every method and data set, several of them side by side."""
    from mtlscale.execution.tuning.searches import MethodSearch, execute_searches
    from mtlscale.execution.tuning.tune_setup import setup_of

    search, folder = sweep.search, home.experiment(sweep.plan.experiment.name)
    journal = folder / f"begun-{search.algorithm}-{search.scheduler}.jsonl"
    runs = folder / "population" if search.scheduler == "pbt" else home.root / "runs"

    searches, records = [], {record.run_id: record for record in sweep.plan.board.ended}
    for number, base in enumerate(sweep.bases):
        if base not in sweep.distinct:
            continue
        tried = (trial.run_id for trial in sweep.of(base) if sweep.plan.board.is_done(trial.run_id))
        finished = [records[run_id] for run_id in tried]
        data, suite = sweep.plan.data.folders[base.data], sweep.plan.data.manifests[base.data].suite
        shared = setup_of(base, search, data, suite, runs, journal, options)
        searches.append(MethodSearch(search, shared, tuple(finished), folder / f"tune-{number}"))

    searches = [candidate for candidate in searches if candidate.remaining]
    yield from execute_searches(searches, sweep.lanes(slots, len(searches)))
