"""Results of an experiment: its records, and the reports made from them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import Experiment, suite_delta
from mtlscale.config.registry.report_parts import plugin_sources, stems
from mtlscale.records import Epoch, Ledger, RunRecord, read_epochs, write_atomically
from mtlscale.report.report_section import HTML
from mtlscale.report.tables.planned import lacks_runs, missing_notes, planned_rows
from mtlscale.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from mtlscale.report.leaderboard import Leaderboard
    from mtlscale.report.rendered import Report
    from mtlscale.report.sweeps.sweeps import Sweep
    from mtlscale.report.tables.published import Published


@dataclass(frozen=True)
class Results:
    """The records of all runs of one experiment, in the order of the plan, failed and diverged ones included.

    Printed they are their leaderboard.
    """

    experiment: Experiment
    records: tuple[RunRecord, ...]
    folder: Path  # where the ledger and the reports are
    search: Sweep | None = None  # the trials that chose the settings, where there was a search
    notes: Mapping[str, str] = field(default_factory=dict)  # data set -> why none of its runs are shown

    def leaderboard(self, *, explained: bool = True) -> Leaderboard:
        """Compare the methods: means and intervals over seeds, Δ, η, cost, tests.

        Args:
            explained: Say why rows of the file have no runs, for which the ledger is read.
        """
        from mtlscale.report.leaderboard import Leaderboard

        return Leaderboard.from_records(
            list(self.records),
            baseline=self.experiment.baseline,
            reference=self.experiment.reference,
            published=self._published(),
            delta=self.experiment.delta_of(),
            notes=self._missing() if explained else None,
            planned=planned_rows(self.experiment),
            plugins=stems(self.experiment.plugins),
        )

    def _missing(self) -> dict[str, tuple[str, ...]]:
        """Return the notes on planned rows without runs; the ledger is read where there are any."""
        if not self.records or not lacks_runs(self.experiment, self.records):
            return {}
        ledger = Ledger(self.folder / "ledger.jsonl")
        notes = missing_notes(self.experiment, self.records, ledger.latest().values())
        return {**notes, **{dataset: (note,) for dataset, note in self.notes.items()}}

    def epochs(self, run_id: str) -> list[Epoch]:
        """Return the epochs of a run, which its record does not have."""
        return read_epochs(self.folder.parent.parent / "runs" / run_id)

    def __repr__(self) -> str:
        if not self.records:
            return f"Results of {self.experiment.name}: no runs"
        return repr(self.leaderboard())

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show."""
        if self.records:
            return self.leaderboard()._repr_html_()
        from mtlscale.report.formats.html import empty_html

        return empty_html(self.experiment.name)

    def page(self, *, live: str = "") -> str:
        """Return the report as one HTML page.

        Args:
            live: The state of the results it shows, for a page that asks its server for news.
        """
        return self.report(live=live).text(HTML)

    def report(self, *, live: str = "") -> Report:
        """Return the report in all of its formats."""
        board, description = self.leaderboard(), self.experiment.description
        return board.report(
            self.records,
            title=self.experiment.name,
            overall=board.overall(),
            descriptions=[description] if description else [],
            epochs=self.epochs,
            live=live,
        )

    def _published(self) -> Published | None:
        from mtlscale.report.tables.published import read_published

        return None if self.experiment.published is None else read_published(self.experiment.published)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per run, task, split and metric: dataset, method, seed, status, split, task, metric, value."""
        import pandas as pd

        columns = ["run_id", "dataset", "method", "seed", "status", "split", "task", "metric", "value"]

        rows: list[tuple[object, ...]] = [
            (r.run_id, r.dataset, r.method, r.seed, r.status, split, task, metric, value)
            for r in self.records
            for split, tasks in r.metrics.items()
            for task, metrics in tasks.items()
            for metric, value in metrics.items()
        ]

        rows += [
            (r.run_id, r.dataset, r.method, r.seed, r.status, None, None, None, float("nan"))
            for r in self.records
            if not r.metrics
        ]

        return pd.DataFrame(rows, columns=columns)

    def write_report(self) -> dict[str, Path]:
        """Write the leaderboard as Markdown, CSV, HTML and charts, beside the ledger; return kind -> file.

        Existing files are kept where nothing that shapes them has changed.
        """
        from mtlscale.report.report_files import write_report

        mark = self.folder / "report.json"
        state = self.state()

        with contextlib.suppress(OSError, ValueError):
            last_report = json.loads(mark.read_bytes())
            files = {kind: self.folder / name for kind, name in last_report["files"].items()}
            if last_report["state"] == state and all(file.exists() for file in files.values()):
                return files

        files = write_report(
            list(self.records),
            self.folder,
            self.experiment.name,
            epochs=self.epochs,
            board=self.leaderboard(),
            description=self.experiment.description,
        )

        names = {kind: str(file.relative_to(self.folder)) for kind, file in files.items()}
        write_atomically(mark, json.dumps({"state": state, "files": names}).encode())

        return files

    def state(self) -> str:
        """Return a hash of everything that shapes the report.

        It covers the records, the experiment but for where and how it runs, the contents of its published file, and
        this program.
        """
        experiment = self.experiment.model_dump(mode="json", exclude={"published", "resources", "tracking", "plugins"})
        published = self._published()

        parts = {
            "records": [
                (r.run_id, r.dataset, r.method, r.seed, r.status, r.finished, sorted(r.metrics)) for r in self.records
            ],
            "experiment": experiment,
            "notes": dict(self.notes),
            "delta": {dataset.label: suite_delta(dataset.name) for dataset in self.experiment.datasets},
            "published": None if published is None else published.model_dump(mode="json"),
            "version": __version__,
            "program": program(),
            "plugins": plugin_sources(stems(self.experiment.plugins)),
        }

        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def program() -> str:
    """Return a hash of the files that make reports: a checkout changes without its version."""
    folder = Path(__file__).parent
    rooms = (folder, folder.parent / "metrics")
    files = sorted(path for room in rooms for path in room.rglob("*.*") if path.is_file() and path.suffix != ".pyc")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
