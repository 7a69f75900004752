"""Ray for as long as an experiment needs it: its own, or a cluster that it joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mtlscale.config import Experiment
from mtlscale.execution.cluster import cluster
from mtlscale.execution.preparing.shared_home_check import check_shared
from mtlscale.records import Home


@contextmanager
def ray_for(experiment: Experiment, home: Home, address: str | None, note: Callable[[str], None]) -> Iterator[None]:
    """Start Ray unless it runs, or join the cluster; raise `UserError` for what fits nowhere."""
    with cluster.session(address, note):
        cluster.slots(experiment.resources, 1)  # refuses before any node is asked
        search = experiment.search
        if home.storage is None or (search is not None and search.adaptive):  # Tune's own files need the home
            check_shared(home.root)
        yield
