"""What becomes of thousands of runs on a cluster of hundreds of GPUs, and what their driver does meanwhile.

    python benchmarks/run.py simulated_cluster                                # 64 nodes × 8 GPUs, 10,000 runs, minutes
    python benchmarks/run.py simulated_cluster --ray-nodes 12                 # and real raylets with GPUs in name only

(a) *The cluster.* 100 experiments of 100 runs arrive one after the other, each with 1 to 16 workers a run. Their
queues, their retries and the number of their groups are this project's own (`JobQueue`, `runs_at_once`).
The nodes and the time are simulated: Ray's placement, starts, epochs, nodes that die, spot nodes that are taken away
after a notice, and come back. `--arrival` sets how busy the cluster is.

(b) *The driver.* The real executor and the real recorder take all runs of one experiment from simulated workers, 64 and
then 512 at once; what a run costs must not depend on their number.

(c) *Real Ray* (`--ray-nodes`): that many raylets on this machine, and the same groups placed by Ray itself and by the
simulated cluster; also what Ray takes to look at as many workers as (b) has.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness import Sheet

EPOCHS = 10
WORKERS = range(1, 17)  # of a run
START = {True: 40.0, False: 8.0}  # seconds until workers train, of a group and of one worker alone
NOTICE = 120.0  # seconds between a spot node's notice and its end
RETURN = 600.0  # until another node takes its place
HOUR = 3600.0
GIVEN_UP = 900.0  # seconds: `resources.start_minutes` as it is by default


# -- (a) the cluster ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    number: int
    size: int
    free: int
    up: bool = True
    draining: bool = False


class Nodes:
    """Nodes as Ray sees them: who gets a place, in which order."""

    def __init__(self, count: int, gpus: int) -> None:
        self.all = [Node(number, gpus, gpus) for number in range(count)]

    @property
    def free(self) -> int:
        return sum(node.free for node in self.all if node.up and not node.draining)

    def place(self, workers: int) -> list[Node] | None:
        """All workers of a group at once, or none: on as few nodes as Ray's PACK finds."""
        if self.free < workers:
            return None
        usable = [node for node in self.all if node.up and not node.draining]
        places: list[Node] = []
        while len(places) < workers:  # Ray takes the node with most room, and fills it
            node = max(usable, key=lambda node: (node.free, -node.number))
            taken = min(node.free, workers - len(places))
            node.free -= taken
            places += [node] * taken
        return places


@dataclass(eq=False)
class Group:
    """A group of workers of an experiment, from its request for places to its end."""

    name: str
    driver: Driver
    asked: float
    places: list[Node] = field(default_factory=list)
    incarnation: int = 0  # starts anew with every loss: events of an earlier one mean nothing
    run: str | None = None
    epoch_began: float = 0.0


class Driver:
    """An experiment: its queue, its groups, and how far its runs are."""

    def __init__(self, number: int, runs: int, workers: int, slots: int, rng: random.Random) -> None:
        from mtlscale.execution.workers.job_queue import JobQueue

        self.number, self.workers, self.slots = number, workers, slots
        jobs: dict[str, Any] = {}
        for name in (f"{number}-{run}" for run in range(runs)):
            jobs[name] = SimpleNamespace(run_id=name)
            jobs[name].jobs = (jobs[name],)
        self.queue = JobQueue({(name,): job for name, job in jobs.items()}, max_failures=2, patience=2 + slots)
        mean = rng.choice((60.0, 300.0, 1200.0))  # seconds of a run on one worker
        self.seconds = {run_id: mean * rng.lognormvariate(0, 0.5) / workers**0.8 for run_id in jobs}
        self.epochs = dict.fromkeys(jobs, 0)
        self.groups: dict[str, Group] = {}
        self.arrived = self.first_up = self.ended = -1.0
        self.finished = self.failed = 0
        self.names = itertools.count()


class Simulation:
    """Time, the nodes, and what happens to the groups on them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.rng = options, random.Random(options.seed)
        self.nodes = Nodes(options.nodes, options.gpus)
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order, self.now = itertools.count(), 0.0
        self.waiting: list[Group] = []
        self.drivers: list[Driver] = []
        self.on: dict[Node, set[Group]] = defaultdict(set)
        self.queue_cpu = 0.0
        self.sums: dict[str, float] = defaultdict(float)
        self.placements: list[tuple[int, int, float]] = []  # workers, nodes, seconds waited

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self.heap, (when, next(self.order), what, arguments))

    def asked(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """The real queue's answer; what it takes is the driver's time."""
        before = time.process_time()
        answer = method(*arguments)
        self.queue_cpu += time.process_time() - before
        return answer

    def run(self) -> None:
        options = self.options
        room = options.nodes * options.gpus
        when = 0.0
        for number in range(options.experiments):
            workers = self.rng.choice([count for count in WORKERS if count <= room])
            self.drivers.append(
                Driver(number, options.runs // options.experiments, workers, self._slots(workers), self.rng)
            )
            self.at(when, self.arrive, self.drivers[-1])
            when += self.rng.expovariate(1 / options.arrival)
        for node in self.nodes.all:
            self._doom(node)
        left = len(self.drivers)
        while left:
            when, _, what, arguments = heapq.heappop(self.heap)
            self._account(when - self.now)
            self.now = when
            what(*arguments)
            left = sum(driver.ended < 0 for driver in self.drivers)

    def _slots(self, workers: int) -> int:
        from mtlscale.config import ResourceSpec
        from mtlscale.execution.placement import runs_at_once

        nodes = [{"CPU": 96.0, "GPU": float(self.options.gpus)}] * self.options.nodes
        resources = ResourceSpec(workers=workers, gpus_per_worker=1)
        return runs_at_once(nodes, (), resources, self.options.runs // self.options.experiments)

    def _account(self, seconds: float) -> None:
        up = [node for node in self.nodes.all if node.up]
        size, free = sum(node.size for node in up), sum(node.free for node in up)
        self.sums["there"] += size * seconds
        self.sums["held"] += (size - free) * seconds
        if self.waiting:
            self.sums["there while some wait"] += size * seconds
            self.sums["idle while some wait"] += free * seconds

    # An experiment's driver.

    def arrive(self, driver: Driver) -> None:
        driver.arrived = self.now
        self.start_groups(driver)

    def start_groups(self, driver: Driver) -> None:
        """As the driver does: a group for every run that waits for one, as long as there is room."""
        snapshot = self.asked(driver.queue.snapshot)
        for event in snapshot.events:
            driver.failed += type(event).__name__ == "LostRun"
        free = len(driver.groups) - snapshot.held_jobs
        while len(driver.groups) < driver.slots and free < snapshot.waiting:
            group = Group(f"group-{driver.number}-{next(driver.names)}", driver, self.now)
            driver.groups[group.name] = group
            free += 1
            self.ask(group)
        if driver.finished + driver.failed == len(driver.epochs) and driver.ended < 0:
            driver.ended = self.now
            for group in list(driver.groups.values()):
                self.leave(group)

    def ask(self, group: Group) -> None:
        """Ask for places; a group that nobody needs ends."""
        group.incarnation, group.run, group.asked = group.incarnation + 1, None, self.now
        if not self.asked(group.driver.queue.begin, group.name, group):
            self.leave(group)
            return
        self.waiting.append(group)
        self.place()

    def place(self) -> None:
        """Give free places to those who wait: the first that fits, as Ray does."""
        for group in list(self.waiting):
            if self.nodes.free == 0:
                return
            places = self.nodes.place(group.driver.workers)
            if places is None:
                continue
            self.waiting.remove(group)
            group.places = places
            for node in set(places):
                self.on[node].add(group)
            self.placements.append((len(places), len(set(places)), self.now - group.asked))
            self.at(self.now + START[len(places) > 1], self.come_up, group, group.incarnation)

    def come_up(self, group: Group, incarnation: int) -> None:
        if incarnation != group.incarnation:
            return
        driver = group.driver
        driver.first_up = self.now if driver.first_up < 0 else driver.first_up
        for _ in group.places:
            self.asked(driver.queue.enter, group.name, None)
        self.take(group)

    def take(self, group: Group) -> None:
        driver = group.driver
        job = self.asked(driver.queue.take, group.name)
        if job is None:
            self.leave(group)
            return
        group.run = job.run_id
        self.next_epoch(group)

    def next_epoch(self, group: Group) -> None:
        assert group.run is not None
        group.epoch_began = self.now
        seconds = group.driver.seconds[group.run] / EPOCHS
        self.at(self.now + seconds, self.end_epoch, group, group.incarnation)

    def end_epoch(self, group: Group, incarnation: int) -> None:
        from mtlscale.records.events import EpochEnded, RunEnded

        if incarnation != group.incarnation:
            return
        driver, run = group.driver, group.run
        assert run is not None
        driver.epochs[run] += 1  # its checkpoint: a run that loses its workers goes on from here
        self.sums["trained"] += len(group.places) * (self.now - group.epoch_began)
        nothing: Any = None
        if driver.epochs[run] < EPOCHS:
            self.asked(driver.queue.report, group.name, EpochEnded(run, nothing))
            self.next_epoch(group)
            return
        self.asked(driver.queue.report, group.name, RunEnded(run, nothing))
        driver.finished += 1
        if driver.finished + driver.failed == len(driver.epochs):
            self.start_groups(driver)
        else:
            self.take(group)

    def leave(self, group: Group, error: str | None = None) -> None:
        group.incarnation += 1
        group.driver.groups.pop(group.name, None)
        self.asked(group.driver.queue.leave, group.name, error)
        if group in self.waiting:
            self.waiting.remove(group)
        self.free(group)

    def free(self, group: Group) -> None:
        for node in group.places:
            if node.up:
                node.free += 1
            self.on[node].discard(group)
        group.places = []
        self.place()

    # The nodes.

    def _doom(self, node: Node) -> None:
        spot = node.number < self.options.spot * self.options.nodes
        hours = self.options.spot_hours if spot else self.options.node_hours
        when = self.now + HOUR * self.rng.expovariate(1 / hours)
        if spot:
            self.at(when, self.notice, node)
        else:
            self.at(when, self.lose, node)

    def notice(self, node: Node) -> None:
        """A node that will be taken away gets no new work; what trains there goes on."""
        node.draining = True
        self.sums["notices"] += 1
        self.sums["running at a notice"] += len(self.on[node])
        self.at(self.now + NOTICE, self.lose, node)

    def lose(self, node: Node) -> None:
        self.sums["nodes lost"] += 1
        node.up = node.draining = False
        hit, self.on[node] = self.on[node], set()
        for group in hit:
            self.sums["groups lost"] += 1
            if group.run is not None:
                self.sums["repeated"] += len(group.places) * (self.now - group.epoch_began)
            group.incarnation += 1
            places, group.places = group.places, []
            for place in places:
                if place is not node:
                    place.free += 1
                    self.on[place].discard(group)
        for group in hit:
            self.leave(group, "its node died")
            self.start_groups(group.driver)
        self.at(self.now + RETURN, self.come_back, node)

    def come_back(self, node: Node) -> None:
        node.up, node.free = True, node.size
        self._doom(node)
        self.place()

    # What came of it.

    def rows(self) -> list[tuple[str, str]]:
        sums, drivers = self.sums, self.drivers
        runs = sum(len(driver.epochs) for driver in drivers)
        finished, failed = sum(driver.finished for driver in drivers), sum(driver.failed for driver in drivers)
        waits = {driver: driver.first_up - driver.arrived for driver in drivers if driver.first_up >= 0}
        late = sum(wait > GIVEN_UP for wait in waits.values())
        longest = {
            name: max((wait for driver, wait in waits.items() if driver.workers in sizes), default=0) / 60
            for name, sizes in (("1 to 4", range(1, 5)), ("5 to 8", range(5, 9)), ("9 to 16", range(9, 17)))
        }
        small = [nodes for workers, nodes, _ in self.placements if 1 < workers <= self.options.gpus]
        one_node = sum(nodes == 1 for nodes in small) / max(1, len(small))
        idle = sums["idle while some wait"] / max(1.0, sums["there while some wait"])
        repeated = sums["repeated"] / (sums["trained"] + sums["repeated"])
        return [
            ("runs finished / failed", f"{finished:,} / {failed:,} of {runs:,}"),
            ("simulated hours", f"{self.now / HOUR:.1f}"),
            ("GPUs held by workers", f"{sums['held'] / sums['there']:.1%}"),
            ("time in which some run waits for a place", f"{sums['there while some wait'] / sums['there']:.1%}"),
            ("GPUs idle in that time", f"{idle:.1%}"),
            ("groups of 2 to 8 workers on one node", f"{one_node:.0%} of {len(small):,}"),
            ("wait of an experiment for its first worker, median", f"{statistics.median(waits.values()) / 60:.1f} min"),
            *((f"longest such wait, {name} workers", f"{wait:.0f} min") for name, wait in longest.items()),
            (f"experiments that wait longer than {GIVEN_UP / 60:.0f} min", f"{late} of {len(drivers)}"),
            ("nodes lost, of them after a notice", f"{sums['nodes lost']:.0f}, {sums['notices']:.0f}"),
            ("groups that lost a worker", f"{sums['groups lost']:.0f}"),
            ("GPU time repeated after losses", f"{repeated:.2%}"),
            ("the queue's CPU time", f"{1e3 * self.queue_cpu / runs:.3f} ms a run"),
        ]


# -- (b) the driver ----------------------------------------------------------------------------------------------------


class SimulatedStart:
    """Start of workers that train in simulated time: an event of their runs after a second, on average."""

    own, capacity = False, 1

    def __init__(self, seed: int) -> None:
        from mtlscale.execution.workers.job_queue import JobQueue

        class Queue(JobQueue):
            def close(self) -> None:
                """Nothing: it lies in this process."""

        self.queue, self.rng, self.now, self.spent, self.looks = Queue, random.Random(seed), 0.0, 0.0, 0
        self.heap: list[tuple[float, int, Iterator[None]]] = []
        self.order, self.over = itertools.count(), set[str]()

    def worker(self, name: str, title: str, queue: Any) -> Any:
        self._later(self._work(name, queue))
        return SimpleNamespace(
            name=name,
            error=None,
            ended=lambda: name in self.over,
            late=lambda: None,
            dismiss=lambda: None,
            end=lambda handles: None,
        )

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(1e9 * self.now)

    def sleep(self, seconds: float) -> None:
        """Let time pass, which costs the driver nothing."""
        before = time.process_time()
        self.now, self.looks = self.now + seconds, self.looks + 1
        while self.heap and self.heap[0][0] <= self.now:
            work = heapq.heappop(self.heap)[2]
            if next(work, self) is not self:
                self._later(work)
        self.spent += time.process_time() - before

    def _later(self, work: Iterator[None]) -> None:
        heapq.heappush(self.heap, (self.now + self.rng.expovariate(1), next(self.order), work))

    def _work(self, name: str, queue: Any) -> Iterator[None]:
        from cases import scale

        from mtlscale.execution.faults.dumps import WorkerLocation
        from mtlscale.records.events import EpochEnded, RunEnded

        queue.enter(name, WorkerLocation("", 0, ""))
        while (job := queue.take(name)) is not None:
            run = job.jobs[0].run
            for epoch in range(1, scale.EPOCHS + 1):
                yield
                queue.report(name, EpochEnded(run.run_id, scale.epoch_of(epoch, self.rng)))
            queue.report(name, RunEnded(run.run_id, scale.record_of(run, self.rng)))
        self.over.add(name)


def drive(home: Path, runs: int, slots: int) -> dict[str, float]:
    """The real executor and recorder; seconds of CPU that are the driver's own."""
    from cases import scale

    from mtlscale.config import ResourceSpec
    from mtlscale.execution.following import follow
    from mtlscale.execution.planning.plan import make_plan
    from mtlscale.execution.sinks import Sinks
    from mtlscale.execution.workers import executor
    from mtlscale.execution.workers.jobs import Job, Options
    from mtlscale.records import Home

    experiment, place = scale.experiment_of(runs), Home(home)
    data = scale.data_of(experiment, home)
    found = make_plan(experiment, experiment.runs(data.fingerprints), place.ledger("scale"), place, data)
    jobs = [Job(run, home, place.run(run.run_id)) for run in found.todo]
    simulated: Any = SimulatedStart(0)
    real, executor.time = executor.time, simulated  # type: ignore[attr-defined]
    try:
        cpu, events = time.process_time(), 0.0

        def coming() -> Iterator[Any]:
            nonlocal events
            came = executor.execute_jobs(jobs, slots, Options(ResourceSpec()), simulated)
            while True:
                before = time.process_time()
                event = next(came, None)
                events += time.process_time() - before
                if event is None:
                    return
                yield event

        follow(coming(), found.board, place, Sinks(), lambda: None)
        recording = time.process_time() - cpu - events
        cpu = time.process_time() - cpu - simulated.spent
    finally:
        executor.time = real  # type: ignore[attr-defined]
    return {"runs": len(jobs), "pool": cpu - recording, "recording": recording, "waits": simulated.looks}


# -- (c) real Ray ------------------------------------------------------------------------------------------------------


def on_real_ray(count: int, gpus: int, groups: int, streams: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Groups placed by Ray on real raylets, and by the simulated nodes; what the pool's wait costs."""
    import psutil
    import ray
    from ray.cluster_utils import Cluster
    from ray.util import placement_group, remove_placement_group

    def memory() -> float:
        return sum(child.memory_info().rss - child.memory_info().shared for child in psutil.Process().children(True))

    began = time.perf_counter()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        head = memory()
        for _ in range(count):
            cluster.add_node(num_cpus=gpus, num_gpus=gpus, wait=False)
        cluster.wait_for_nodes(timeout=600)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        seconds = time.perf_counter() - began
        yield "raylets with GPUs in name", f"{count} in {seconds:.0f} s, {(memory() - head) / count / 1e6:.0f} MB each"

        rng, simulated = random.Random(0), Nodes(count, gpus)
        held: list[tuple[Any, list[Node]]] = []
        same, spent, mine, theirs = 0, [], 0, 0
        for _ in range(groups):
            workers = rng.choice([size for size in WORKERS if size <= count * gpus])
            while (places := simulated.place(workers)) is None:
                other, nodes = held.pop(rng.randrange(len(held)))
                remove_placement_group(other)
                for node in nodes:
                    node.free += 1
            started = time.perf_counter()
            group = placement_group([{"GPU": 1, "CPU": 1}] * workers, strategy="PACK")
            assert group.wait(120), "Ray finds no room where the simulated nodes have some"
            spent.append(time.perf_counter() - started)
            held.append((group, places))
            table = ray.util.placement_group_table(group)
            mine += len(set(map(id, places)))
            theirs += len(set(table["bundles_to_node_id"].values()))
            same += len(set(map(id, places))) == len(set(table["bundles_to_node_id"].values()))
        slow = sorted(spent)[-max(1, groups // 100)]
        yield "groups placed by Ray where the simulation has room", f"{groups} of {groups}"
        yield (
            "nodes of a group, Ray / simulated",
            f"{theirs / groups:.2f} / {mine / groups:.2f}, {same / groups:.0%} equal",
        )
        yield (
            "Ray places a group in",
            f"{1e3 * statistics.median(spent):.0f} ms; 1 of 100 in {1e3 * slow:.0f} ms or more",
        )

        for others, _ in held:
            remove_placement_group(others)
        never = ray.remote(num_cpus=1000, num_returns="streaming")(_nothing)
        for number in streams:
            waiting = [never.remote() for _ in range(number)]
            ray.wait(waiting, num_returns=1, timeout=0, fetch_local=False)
            cpu_before = time.process_time()
            for _ in range(20):
                ray.wait(waiting, num_returns=1, timeout=0, fetch_local=False)
            yield f"Ray looks at {number} workers in", f"{50 * (time.process_time() - cpu_before):.2f} ms of CPU"
            for stream in waiting:
                ray.cancel(stream)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _nothing() -> Iterator[int]:
    yield 0


def show(title: str, rows: Sequence[tuple[str, str]]) -> None:
    sheet = Sheet(title, "what", "")
    for row in rows:
        sheet.row(*row)
    sheet.show()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=8, help="of each node")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--experiments", type=int, default=100, help="that the runs belong to")
    parser.add_argument("--arrival", type=float, default=240.0, help="seconds between two experiments, on average")
    parser.add_argument("--spot", type=float, default=0.5, help="share of the nodes that may be taken away")
    parser.add_argument("--spot-hours", type=float, default=6.0, help="until a spot node is taken away, on average")
    parser.add_argument("--node-hours", type=float, default=500.0, help="until another node dies, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slots", type=int, nargs="+", default=[64, 512], help="workers at once in (b)")
    parser.add_argument("--only", choices=("a", "b", "c"), help="leave the other parts out")
    parser.add_argument("--ray-nodes", type=int, default=0, help="raylets of (c)")
    parser.add_argument("--ray-groups", type=int, default=300, help="groups of (c)")


QUICK = {"nodes": 8, "runs": 400, "experiments": 10, "slots": [8]}


def run(options: argparse.Namespace) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    if options.only in (None, "a"):
        simulation = Simulation(options)
        simulation.run()
        title = f"{options.nodes} nodes × {options.gpus} GPUs, {options.runs:,} runs of 1 to 16 workers"
        show(title, simulation.rows())

    rows = []
    for slots in options.slots if options.only in (None, "b") else ():
        with tempfile.TemporaryDirectory() as home:
            found = drive(Path(home), options.runs, slots)
        runs = found["runs"]
        pool, records = 1e3 * found["pool"] / runs, 1e3 * found["recording"] / runs
        text = f"{pool:.2f} ms executor, {records:.2f} ms records, {found['waits'] / runs:.1f} looks"
        rows.append((f"a run, {slots} workers at once", text))
    if rows:
        show("the driver's CPU time, without Ray", rows)

    if options.ray_nodes and options.only in (None, "c"):
        show("on real raylets", list(on_real_ray(options.ray_nodes, options.gpus, options.ray_groups, options.slots)))
