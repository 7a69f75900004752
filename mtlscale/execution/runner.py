"""Driver of an experiment: prepare, search, plan, execute, and hand every event to the sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

from mtlscale.config import Experiment
from mtlscale.execution.cluster import cluster
from mtlscale.execution.cluster.client import check_client
from mtlscale.execution.finding.own_board import note_own_runs, own_board
from mtlscale.execution.following import follow
from mtlscale.execution.jobs_of_plan import jobs_of
from mtlscale.execution.monitoring import own_sinks
from mtlscale.execution.ownership import Owner, driving
from mtlscale.execution.planning.check import plan_runs, weight_notes
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.planning.reader_report import planned
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.preparing.shared_home_check import check_shared
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.stopping import DoneCount
from mtlscale.execution.tuning.sweep import SweepPlan, Trials, execute_sweep, plan_sweep, untrained, winners
from mtlscale.execution.workers.executor import execute_jobs, start_of
from mtlscale.execution.workers.jobs import Options
from mtlscale.records import Board, Closed, Home, Sink, check_folder, complete, ledgers_of, new_folders


def run(
    experiment: Experiment,
    home: Home,
    *,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
    sinks: Sequence[Sink] = (),
    wait: bool = True,
    whole: Experiment | None = None,
    trials_only: bool = False,
) -> tuple[Board | None, Trials | None]:
    """Run what is not done yet; with a search, tune first and train the winners.

    A run that fails is recorded with its cause and the others go on; one that was cut off resumes from its last
    checkpoint.

    Args:
        experiment: The experiment.
        home: The home folder.
        source: Where the raw data are, if they have to be prepared.
        address: A Ray cluster to join; default is $RAY_ADDRESS, or a local Ray for the time.
        download: Fetch raw data that are not found.
        sinks: Whoever takes the events, in this order.
        wait: Where another process runs the experiment in this home, watch it and go on with what it leaves.
        whole: The experiment that this one is a part of; its other runs are on the board, too.
        trials_only: End after the search.

    Returns:
        The runs with what is known of them, None for trials alone, and the trials of the search if there is one.

    Raises:
        UserError: For what can be known before anything starts, including another process if `wait` is False.
        Interrupted: A KeyboardInterrupt, when Ctrl-C or a signal has ended it.
    """
    check_client()
    check_folder(home.root)
    if cluster.named(address) is None:  # a cluster is asked when it is joined
        cluster.check_fits(experiment.resources)

    tally, heard = DoneCount(), Sinks(*sinks)
    with tally, new_folders(home.root / "experiments"), driving(experiment.name, home, heard, wait=wait) as owner:
        audience = Sinks(*own_sinks(experiment.name, home), tally, *sinks)
        try:
            with ExitStack() as services:

                @cache  # one Ray for preparation, search and runs
                def start() -> None:
                    services.enter_context(cluster.session(address, audience.note))
                    cluster.slots(experiment.resources, 1)  # refuses what fits nowhere before any node is asked
                    search = experiment.search
                    if home.storage is None or (search is not None and search.adaptive):  # Tune's files need the home
                        check_shared(home.root)

                data = prepare_data(experiment, home, source, download, audience, start)
                search = None if experiment.search is None else plan_sweep(experiment, home, data)
                trials = None if search is None else _tune(search, home, start, audience, owner)
                board = None if trials_only else _train(experiment, whole, home, data, trials, start, audience, owner)
                complete(home, ledgers_of(experiment, home), audience.note)
        except BaseException as error:
            audience.take(Closed.by(error))
            raise
        audience.take(Closed("FINISHED", board, trials))
        return board, trials


def _tune(search: SweepPlan, home: Home, start: Callable[[], None], told: Sinks, owner: Owner) -> Trials:
    """Run the trials that are not done; return all of them."""
    board, experiment = search.plan.board, search.plan.experiment
    board.list_unlisted()

    if not search.complete:
        start()
        slots = cluster.slots(experiment.resources, search.jobs)
        told.take(search.planned(slots))
        events = execute_sweep(search, home, slots, Options.of(experiment, home), owner.claimed_jobs)
        follow(events, board, home, told, owner.check, score=search.score)
    return search.result()


def _train(
    experiment: Experiment,
    whole: Experiment | None,
    home: Home,
    data: Datasets,
    trials: Trials | None,
    start: Callable[[], None],
    told: Sinks,
    owner: Owner,
) -> Board:
    """Run what is not done of the experiment, which is a part of the `whole` one; return the board of the whole."""
    metric = None if experiment.search is None else experiment.search.metric
    chosen = None if trials is None else winners(trials, metric)
    plan = plan_runs(experiment, experiment.runs(data.fingerprints, chosen), home, data)
    board = plan.board
    note_own_runs(whole or experiment, home, data, board if whole is None else None, told)
    board.list_unlisted()

    if not plan.todo:
        told.take(planned(plan, 0))
    else:
        start()
        lost = [] if trials is None else untrained(plan.todo, trials, metric)
        without_winner = {event.run_id for event in lost}
        jobs = jobs_of([run for run in plan.todo if run.run_id not in without_winner], plan, home)
        slots = cluster.slots(experiment.resources, len(jobs))
        told.take(planned(plan, slots))
        for line in weight_notes(plan.todo):
            told.note(line)

        options = Options.of(experiment, home)
        follow((event for event in lost), board, home, told, owner.check)
        workers = start_of(options, home, experiment.name)
        events = owner.claimed_jobs(jobs, partial(execute_jobs, slots=slots, options=options, start=workers))
        follow(events, board, home, told, owner.check)

    return board if whole is None else own_board(whole, home, data.fingerprints)
