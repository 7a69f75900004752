"""Results of a search: the winner of every method, its settings, and charts of the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from mtlscale.config import Dimension, Knobs, space_of
from mtlscale.records import RunRecord, best, score, write_atomically
from mtlscale.report.cells.sheet import Sheet, text_column
from mtlscale.report.sweeps.search_study import of_sweep, settings_text, short

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtlscale.config import Experiment

Key = tuple[str, str]  # dataset and method


@dataclass(frozen=True)
class Sweep:
    """The trials of a search by dataset and method, in the order they were tried."""

    experiment: Experiment
    trials: Mapping[Key, tuple[RunRecord, ...]]
    folder: Path  # where the ledger and the reports are

    @property
    def metric(self) -> str | None:
        return None if self.experiment.search is None else self.experiment.search.metric

    def best(self, dataset: str, method: str) -> RunRecord | None:
        """Return the winner; None where no trial finished."""
        return best(self.trials[dataset, method], self.metric)

    def winners(self) -> dict[Key, Knobs]:
        """Return the winners' settings."""
        winners = {key: self.best(*key) for key in self.trials}
        return {key: dict(winner.trial) for key, winner in winners.items() if winner is not None}

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per trial: dataset, method, trial (from 0), run_id, status, score, seconds, and every knob."""
        rows = []
        for (dataset, method), records in self.trials.items():
            for index, record in enumerate(records):
                value = score(record, self.metric)
                rows.append(
                    {
                        "dataset": dataset,
                        "method": method,
                        "trial": index,
                        "run_id": record.run_id,
                        "status": record.status,
                        "score": float("nan") if value is None else value[0],
                        "seconds": record.seconds,
                        **record.trial,
                    }
                )

        return pd.DataFrame(rows)

    def sheet(self, names: Sequence[str] = ("dataset", "method")) -> Sheet:
        """Return the table of winners."""
        rows = []
        for (dataset, method), records in self.trials.items():
            winner = self.best(dataset, method)
            value = None if winner is None else score(winner, self.metric)
            finished = sum(record.status == "finished" for record in records)
            rows.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "trials": f"{finished}/{len(records)}",
                    "best validation": f"{float('nan') if value is None else value[0]:.4g}",
                    "chosen": "" if winner is None else settings_text(winner.trial),
                }
            )

        numbers = ("trials", "best validation")
        columns = [
            text_column(name, [row[name] for row in rows], right=name in numbers, prose=name == "chosen")
            for name in (*names, *numbers, "chosen")
        ]
        return Sheet(columns=columns, title="search", names=len(names))

    def to_rich(self) -> RenderableType:
        from mtlscale.report.cells.grid import Grid

        several = len({dataset for dataset, _ in self.trials}) > 1
        return Grid(self.sheet(("dataset", "method") if several else ("method",)))

    def write_report(self) -> dict[str, Path]:
        """Write sweep.md, .csv, .html and charts of every data set into the folder; return kind -> its file.

        Rows without a setting to search have no trials; if there are no others, nothing is written.
        """
        if not any(self.trials.values()):
            return {}

        from mtlscale.report.charts.vega import save
        from mtlscale.report.formats.markdown import markdown_rows
        from mtlscale.report.sweeps.sweep_figures import pictures
        from mtlscale.report.sweeps.sweep_page import page

        frame = self.to_pandas()
        spaces = self.spaces
        search = self.experiment.search
        searched = of_sweep(self.trials, spaces, self.metric, () if search is None else search.objectives)

        files = {
            "sweep table": self._write("sweep.md", "\n".join([*markdown_rows(self.sheet()), ""])),
            "sweep trials": self._write("sweep.csv", frame.to_csv(index=False)),
            "sweep page": self._write("sweep.html", page(self.experiment.name, searched, frame)),
        }

        for dataset, rows in frame.dropna(subset="score").groupby("dataset", sort=False):
            methods = {str(method): group for method, group in rows.groupby("method", sort=False)}
            method_spaces = {method: spaces[str(dataset), method] for method in methods}
            names = {path: short(path) for space in method_spaces.values() for path in space}
            suffix = f"-{dataset}" if frame["dataset"].nunique() > 1 else ""
            for number, charts in enumerate(pictures(methods, method_spaces, names), 1):
                file_suffix = suffix if number == 1 else f"{suffix}-{number}"
                files[f"sweep picture{file_suffix}"] = save(charts, self.folder / f"sweep{file_suffix}.png")

        return files

    @property
    def spaces(self) -> dict[Key, dict[str, Dimension]]:
        """The search space of each data set and method."""
        search = self.experiment.search
        assert search is not None
        fingerprints = dict.fromkeys(self.experiment.data(), "")
        bases = self.experiment.bases(fingerprints)
        keys = {
            (base.dataset, base.method): base for base in bases
        }  # some rows of the file alone may have been searched
        all_spaces = {key: space_of(search, base) for key, base in keys.items() if self.trials.get(key)}
        # A text of numbers has no axis.
        return {
            key: {path: dimension for path, dimension in space.items() if dimension.numbers is None}
            for key, space in all_spaces.items()
        }

    def _write(self, name: str, text: str) -> Path:
        write_atomically(self.folder / name, text.encode())
        return self.folder / name
