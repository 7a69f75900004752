"""Published numbers beside ours: a file of them, and what it says about a leaderboard."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from mtlscale.report.layout import markdown_cell
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtlscale.report.table import Table

FAR = 1.5  # points of difference that want a reason


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedMethod(_Model):
    """A column of a published table."""

    name: str  # as printed
    values: tuple[float, ...]  # by task
    printed_average: float | None = None

    @property
    def mean(self) -> float:
        """Of the values: printed averages need not be that."""
        return float(np.mean(self.values))


class Published(_Model):
    """A published table: one metric on the tasks of one data set."""

    source: str
    dataset: str  # name of the pipeline
    metric: str
    tasks: tuple[str, ...]
    methods: dict[str, PublishedMethod]  # by our label
    note: str = ""
    reasons: str = ""  # why ours may differ

    @model_validator(mode="after")
    def _complete(self) -> Published:
        for label, method in self.methods.items():
            if len(method.values) != len(self.tasks):
                raise ValueError(f"{label} has {len(method.values)} values for {len(self.tasks)} tasks")
        return self


def read_published(path: Path) -> Published:
    """The file of a published table; `UserError` where it is none."""
    try:
        return Published.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(
            f"published: {path} cannot be read ({error.strerror}); mend the experiment's `published`"
        ) from None
    except yaml.YAMLError:
        raise UserError(f"published: {path} is not valid YAML") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise UserError(f"published: {path}: {f'{where}: ' if where else ''}{problem}") from None


@dataclass(frozen=True)
class Comparison:
    """A published table and the methods of a leaderboard that are in it, in the order of the leaderboard."""

    published: Published
    rows: tuple[tuple[str, ...], ...]  # of texts, below HEADER
    far: tuple[str, ...]  # labels of methods that are more than FAR from the published mean

    def to_markdown(self) -> str:
        lines = [f"### Beside {markdown_cell(self.published.source)}", ""]
        lines += ["| " + " | ".join(HEADER) + " |", "| --- | --- |" + " ---: |" * (len(HEADER) - 2)]
        lines += ["| " + " | ".join(markdown_cell(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", f"<sub>{markdown_cell(self.legend())}</sub>", ""])

    def to_html(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in HEADER)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        title = html.escape(f"Beside {self.published.source}")
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><caption>{title}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
            f'<p class="legend">{html.escape(self.legend())}</p>'
        )

    def to_rich(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        title = escape(f"beside {self.published.source}")
        grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for index, header in enumerate(HEADER):
            grid.add_column(header, justify="left" if index < 2 else "right", no_wrap=True)
        for row in self.rows:
            grid.add_row(*(Text(cell, style="bold" if row[0] in self.far else "") for cell in row))
        return Group(grid, Text(self.legend() + "\n", style="dim"))

    def legend(self) -> str:
        """What the columns are, and the reasons offered where a difference is large."""
        parts = [
            f"Published is the mean of the column over the {len(self.published.tasks)} tasks.",
            self.published.note,
            f"(!) marks differences of more than {FAR:g} points: {', '.join(self.far)}." if self.far else "",
            f"Reasons: {self.published.reasons}" if self.far else "",
        ]
        return " ".join(part.strip() for part in parts if part)


HEADER = ("method", "published as", "ours", "published", "printed avg", "difference", "largest on a task")


def compare(table: Table, published: Published) -> Comparison | None:
    """What the published table says about this leaderboard; None where tasks, metric or methods are others."""
    if set(published.tasks) != set(table.tasks) or set(table.main_metrics.values()) != {published.metric}:
        return None
    rows, far = [], []
    columns = [table.main_column(task) for task in published.tasks]
    for label in table.rows.index[table.rows["finished"] > 0]:
        method = published.methods.get(label)
        if method is None:
            continue
        ours, width = table.rows.loc[label, ["average", "average_ci"]]
        by_task = table.rows.loc[label, columns].to_numpy(float) - np.array(method.values)
        most = int(np.abs(by_task).argmax())
        difference = ours - method.mean
        if abs(difference) > FAR:
            far.append(str(label))
        rows.append(
            (
                str(label),
                method.name,
                f"{ours:.2f}" if np.isnan(width) else f"{ours:.2f} ± {width:.2f}",
                f"{method.mean:.2f}",
                "–" if method.printed_average is None else f"{method.printed_average:.2f}",
                f"{difference:+.2f}{' (!)' if abs(difference) > FAR else ''}",
                f"{by_task[most]:+.2f} {published.tasks[most]}",
            )
        )
    return Comparison(published, tuple(rows), tuple(far)) if rows else None
