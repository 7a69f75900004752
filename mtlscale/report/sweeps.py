"""What a search has found: the winner of every method, what it was given, and pictures of the space."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mtlscale.records import RunRecord, best, score, write_atomically
from mtlscale.spec import Dimension, Knobs, space_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtlscale.spec import Experiment

Key = tuple[str, str]  # dataset and method


@dataclass(frozen=True)
class Sweep:
    """All trials of a search by dataset and method, in the order they were tried."""

    experiment: Experiment
    trials: Mapping[Key, tuple[RunRecord, ...]]
    folder: Path  # where the ledger and the reports are

    @property
    def metric(self) -> str | None:
        return None if self.experiment.search is None else self.experiment.search.metric

    def best(self, dataset: str, method: str) -> RunRecord | None:
        """The winner; None where no trial finished."""
        return best(self.trials[dataset, method], self.metric)

    def chosen(self) -> dict[Key, Knobs]:
        """The winners' settings."""
        winners = {key: self.best(*key) for key in self.trials}
        return {key: dict(winner.trial) for key, winner in winners.items() if winner is not None}

    def hopeless(self) -> dict[Key, str]:
        """Why a method has no winner, in one line."""
        return {
            key: f"none of its {len(records)} trials finished: {records[0].error if records else 'there are none'}"
            for key, records in self.trials.items()
            if self.best(*key) is None
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per trial: dataset, method, trial (from 0), run_id, status, score, seconds, and a column per knob."""
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

    def table(self) -> pd.DataFrame:
        """One row per dataset and method: trials, how many finished, seconds spent, best score, chosen settings."""
        rows = []
        for (dataset, method), records in self.trials.items():
            winner = self.best(dataset, method)
            value = None if winner is None else score(winner, self.metric)
            rows.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "trials": len(records),
                    "finished": sum(record.status == "finished" for record in records),
                    "seconds": sum(record.seconds for record in records),
                    "best validation": float("nan") if value is None else value[0],
                    "chosen": "" if winner is None else words(winner.trial),
                }
            )
        return pd.DataFrame(rows)

    def to_rich(self) -> RenderableType:
        from mtlscale.report.grid import Field, Grid

        rows = self.table().to_dict("records")
        several = len({row["dataset"] for row in rows}) > 1
        names = [Field(header=key, texts=[row[key] for row in rows]) for key in ("dataset", "method")]
        counts = [f"{row['finished']}/{row['trials']}" for row in rows]
        scores = [f"{row['best validation']:.4g}" for row in rows]
        fields = [
            Field(header="trials", texts=counts, right=True),
            Field(header="best validation", texts=scores, right=True),
            Field(header="chosen", texts=[row["chosen"] for row in rows], prose=True),
        ]
        return Grid(names=names if several else names[1:], fields=fields, title="search")

    def write_report(self) -> dict[str, Path]:
        """Write sweep.md, .csv, .html and one .png per data set into the folder: what -> its file."""
        from mtlscale.report.canvas import save
        from mtlscale.report.sweep_figures import drawing

        frame = self.to_pandas()
        files = {
            "sweep table": self._write("sweep.md", self.to_markdown()),
            "sweep trials": self._write("sweep.csv", frame.to_csv(index=False)),
            "sweep page": self._write("sweep.html", self._page(frame)),
        }
        for dataset, rows in frame.dropna(subset="score").groupby("dataset", sort=False):
            methods = {str(method): group for method, group in rows.groupby("method", sort=False)}
            spaces = {method: self.spaces[str(dataset), method] for method in methods}
            names = {path: short(path) for space in spaces.values() for path in space}
            suffix = f"-{dataset}" if frame["dataset"].nunique() > 1 else ""
            picture = save(drawing(methods, spaces, names), self.folder / f"sweep{suffix}.png")
            files[f"sweep picture{suffix}"] = picture
        return files

    @property
    def spaces(self) -> dict[Key, dict[str, Dimension]]:
        """What was searched for each data set and method."""
        search = self.experiment.search
        assert search is not None
        fingerprints = dict.fromkeys(self.experiment.data(), "")
        bases = self.experiment.bases(fingerprints)
        return {(b.dataset, b.method): space_of(search, b) for b in bases if self.trials[b.dataset, b.method]}

    def to_markdown(self) -> str:
        """The table of winners."""
        rows = self.table().to_dict("records")
        lines = ["| dataset | method | trials | best validation | chosen |", "| --- | --- | ---: | ---: | --- |"]
        for row in rows:
            trials = f"{row['finished']}/{row['trials']}"
            lines.append(
                f"| {row['dataset']} | {row['method']} | {trials} | {row['best validation']:.4g} | {row['chosen']} |"
            )
        return "\n".join([*lines, ""])

    def _write(self, name: str, text: str) -> Path:
        write_atomically(self.folder / name, text.encode())
        return self.folder / name

    def _page(self, frame: pd.DataFrame) -> str:
        """One page that needs nothing else: budget curves, and what was tried for every method."""
        from plotly.offline import get_plotlyjs

        from mtlscale.report.sweep_figures import budget_figure, importance, parallel_figure, slice_figure

        parts = []
        begun: set[str] = set()
        for (dataset, method), space in self.spaces.items():
            rows = frame[(frame["dataset"] == dataset) & (frame["method"] == method)]
            if dataset not in begun:
                begun.add(dataset)
                parts.append(f"<h2>{html.escape(dataset)}</h2>")
                parts.append(_drawn(budget_figure(frame[frame["dataset"] == dataset])))
            if not space or rows["score"].notna().sum() == 0:
                continue
            names = {path: short(path) for path in space}
            matters = importance(rows, space)
            chosen = self.table().query("dataset == @dataset and method == @method")["chosen"].iloc[0]
            shares = ", ".join(f"{names[path]} {share:.0%}" for path, share in matters.items())
            parts.append(f"<h3>{html.escape(method)}</h3><p>{len(rows)} trials; chosen: {html.escape(chosen)}")
            parts.append(f"<br>share in the variance of the score: {html.escape(shares)}</p>" if shares else "</p>")
            parts.append(_drawn(slice_figure(rows, space, names, matters)))
            parts.append(_drawn(parallel_figure(rows, space, names)))
        style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
        title = html.escape(f"{self.experiment.name} · search")
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
            f"<script>{get_plotlyjs()}</script></head><body><header><h1>{title}</h1></header>"
            f"<main>{''.join(parts)}</main></body></html>"
        )


def _drawn(figure: Any) -> str:
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return text


def words(knobs: Knobs) -> str:
    """Settings in one line: `lr 0.003, balancer.eps 0.1`."""
    return ", ".join(f"{short(path)} {_plain(value)}" for path, value in knobs.items())


def short(path: str) -> str:
    """A setting's path without the parts that say nothing: `lr`, `dropout`, `encoder.dropout`, `balancer.lr`."""
    return path.removeprefix("training.").removeprefix("model.")


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
