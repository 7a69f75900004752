"""Figure 4.6 of AASPC (Yue's thesis): do the features of source and target mix, and does a target lie by its class?

    mtlscale run office_caltech10_cpu --home HOME --set tracking.models=true --only "source only" --only AASPC
    python studies/features.py office_caltech10_cpu --home HOME
    python studies/features.py office_caltech10_cpu --home HOME --picture FILE --transfer A-W   # t-SNE of both domains
    python studies/results.py --home HOME         # writes results/tables from the page that is left in HOME

Features are what the heads read, after training, in evaluation mode; as many samples of either domain as the smaller
one has. *Mixed*: the share of the source among the ten nearest neighbours of a target's sample; 50 % is a full mixture.
*By class*: the share of target samples whose nearest source sample has their class. Both are means over seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors

from mtlscale.config import UserError, load_experiment
from mtlscale.data import Workers
from mtlscale.data.readers.random_access import open_reader
from mtlscale.execution.finding.own_board import own_board
from mtlscale.inference.finished_run import read_source
from mtlscale.inference.network import network
from mtlscale.records import Home, RunRecord, write_atomically
from mtlscale.report.charts.chart import Axis, Chart, Dots, Panel
from mtlscale.report.charts.colors import COLORS, LineStyle
from mtlscale.report.charts.vega import save
from mtlscale.training.batches import Batches

NEIGHBOURS = 10
SUITE = "features_of_domains"


@dataclass(frozen=True)
class Features:
    """Features [2 N, d] of as many samples of the source as of the target, their classes, and who is the target's."""

    values: NDArray[np.float32]
    classes: NDArray[np.int64]
    is_target: NDArray[np.bool_]

    def mixed(self) -> float:
        """Return the share of the source among the nearest neighbours of the target's samples, in percent."""
        nearest = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(self.values)
        found = nearest.kneighbors(self.values[self.is_target], return_distance=False)[:, 1:]
        return 100.0 * float(np.mean(~self.is_target[found]))

    def by_class(self) -> float:
        """Return the share of the target's samples whose nearest sample of the source has their class, in percent."""
        nearest = NearestNeighbors(n_neighbors=1).fit(self.values[~self.is_target])
        found = nearest.kneighbors(self.values[self.is_target], return_distance=False)[:, 0]
        classes = self.classes[~self.is_target][found]
        return 100.0 * float(np.mean(classes == self.classes[self.is_target]))


def features_of(home: Home, record: RunRecord) -> Features:
    """Compute the features of a finished run that has kept its model.

    Raises:
        UserError: If it has not, or its data set is no transfer.
    """
    done = read_source(home, record.run_id)
    model = network(record.spec, done.suite, done.phase, done.phase_input, done.state, None)
    device, dtype = torch.device("cpu"), torch.float32
    reader, _ = open_reader(done.data, "auto", device=device, dtype=dtype)
    batches = Batches(reader, done.suite, device=device, dtype=dtype, workers=Workers(), eval_batch_size=256)
    if len(done.suite.tasks) != 1:
        raise UserError(f"{record.dataset} has {len(done.suite.tasks)} tasks, a transfer between two domains has one")

    domains: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    for split in ("train", "test"):  # the source, the target
        values, classes = [], []
        with torch.inference_mode():
            for batch in batches.of_split(split):
                [task] = batch.tasks
                shown = model(batch).representation
                if shown is None:
                    raise UserError(f"{record.method} has no features that its heads share")
                values.append(shown)
                classes.append(batch.samples.targets[task].flatten())
        domains.append((torch.cat(values).flatten(1).numpy(), torch.cat(classes).long().numpy()))

    size = min(len(classes) for _, classes in domains)
    drawn = [np.random.default_rng(record.seed).permutation(len(classes))[:size] for _, classes in domains]
    return Features(
        np.concatenate([values[rows] for (values, _), rows in zip(domains, drawn, strict=True)]),
        np.concatenate([classes[rows] for (_, classes), rows in zip(domains, drawn, strict=True)]),
        np.repeat([False, True], size),
    )


def page(records: Sequence[RunRecord], home: Home) -> Iterator[str]:
    """Yield two tables with a row for each transfer and a column for each method."""
    rows = []
    for record in records:
        features = features_of(home, record)
        rows.append((record.dataset, record.method, features.mixed(), features.by_class()))
    found = pd.DataFrame(rows, columns=["transfer", "method", "mixed", "by class"])

    titles = {
        "mixed": "Mixed: the source's share of the ten nearest neighbours of a target's sample, %",
        "by class": "By class: the share of target samples whose nearest source sample has their class, %",
    }
    for column, title in titles.items():
        table = found.pivot_table(index="transfer", columns="method", values=column, sort=False).dropna(axis="columns")
        yield f"{title}:\n"
        yield f"| transfer | {' | '.join(map(str, table.columns))} |\n| --- |{' ---: |' * table.shape[1]}"
        for transfer, row in table.iterrows():
            yield f"| {transfer} | {' | '.join(f'{value:.1f}' for value in row)} |"
        means = ", ".join(f"{method} {value:.1f}" for method, value in table.mean().items())
        yield f"\nMean over {len(table)} transfers: {means}.\n"


def picture(features: Mapping[str, Features], title: str, path: Path) -> Path:
    """Draw t-SNE of the features of each method: colours are classes, rings the target."""
    panels = []
    for method, found in features.items():
        places = TSNE(random_state=0).fit_transform(found.values)
        looks = [LineStyle(COLORS[label % len(COLORS)]) for label in found.classes]
        points = Dots(x=places[:, 0], y=places[:, 1], looks=looks, hollow=found.is_target.tolist(), size=4.0)
        panels.append(Panel(marks=[points], title=method, x=Axis(visible=False), y=Axis(visible=False)))
    width = 3.5 * len(panels)
    return save([Chart(panels=panels, title=title, columns=len(panels), width=width, height=3.5)], path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", help="name or file")
    parser.add_argument("--home", type=Path, required=True, help="of its runs, with their models")
    parser.add_argument("--picture", type=Path, help="file to draw one transfer in, the first seed of each method")
    parser.add_argument("--transfer", help="which; default: the first")
    given = parser.parse_args()
    home = Home.at(given.home)
    board = own_board(load_experiment(given.experiment), home)
    records = [record for record in board.records if record.status == "finished"]
    if not records:
        raise UserError(f"no runs of {given.experiment} in {given.home}; start them with `mtlscale run`")

    if given.picture:
        transfer = given.transfer or records[0].dataset
        first = {record.method: record for record in reversed(records) if record.dataset == transfer}
        drawn = {method: features_of(home, first[method]) for method in reversed(first)}
        print(picture(drawn, f"Features of {transfer}, t-SNE: rings are the target's samples", given.picture))
        return 0

    text = "\n".join(page(records, home))
    write_atomically(home.experiment(SUITE) / "page.md", text.encode())
    print(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"features: {error}")
