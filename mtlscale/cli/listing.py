"""The command that shows what an experiment file can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mtlscale.cli.options import console_of
from mtlscale.spec import UserError

if TYPE_CHECKING:
    from rich.table import Table


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("list", epilog="Example: mtlscale list balancers")(list_)


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="methods, balancers, architectures, objectives, encoders, metrics, datasets or experiments"
        ),
    ] = "methods",
) -> None:
    """Show what an experiment file can name: what it needs, what it costs, its knobs and their ranges."""
    from rich.table import Table

    from mtlscale.spec import components, load_experiment, shipped

    console = console_of()
    if what == "experiments":
        table = Table("experiment", "what it is", title="shipped experiments")
        for name in shipped():
            table.add_row(name, load_experiment(name).description)
        console.print(table)
        return
    if what == "metrics":
        console.print(_metrics())
        return
    kinds = {"methods": ("architectures", "balancers", "objectives")}.get(what, (what,))
    if kinds[0] not in components.PACKAGES:
        choices = ["methods", "experiments", "metrics", *components.PACKAGES]
        raise UserError(f"mtlscale list {what}: {components.nearest(what, choices)}")
    for kind in kinds:
        table = Table("name", "what it is", title=kind, title_justify="left")
        balancers = kind == "balancers"
        if balancers:
            table.add_column("needs")
            table.add_column("cost of a step")
        table.add_column("source")
        table.add_column("knobs: default, range, search")
        for name in components.names(kind):
            cls = components.component(kind, name)
            knobs = "\n".join(
                f"[bold]{key}[/bold]={default!r} {spec.range()}".rstrip().replace(" [", " \\[")
                + (f" search {'…'.join(str(v) for v in spec.search)}" if spec.search else "")
                for key, (default, spec) in cls.knobs().items()
            )
            extra = [cls.needs, cls.cost] if balancers else []
            table.add_row(name, cls.summary(), *extra, cls.source, knobs)
        console.print(table)


def _metrics() -> Table:
    """What tasks may report."""
    from rich.table import Table

    from mtlscale.metrics import METRICS

    table = Table("name", "what it is", "better", "unit", "of tasks with loss", title="metrics", title_justify="left")
    for name, info in METRICS.items():
        better = "higher" if info.higher_is_better else "lower"
        table.add_row(name, info.help, better, info.unit, ", ".join(info.losses))
    return table
