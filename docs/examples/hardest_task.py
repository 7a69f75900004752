from mtlscale.report import section, text_sheet
from mtlscale.report.charts.chart import Axis, Bars, Chart, Panel


@section("hardest_task", title="The hardest task")
def hardest_task(view):
    for dataset, table in view.tables.items():
        means = table.rows[[table.main_column(task) for task in table.tasks]].mean()
        names = list(means.index)
        yield f"On {dataset} the methods are worst at {means.idxmin()}: {means.min():.1f} on average."
        yield text_sheet(f"Tasks of {dataset}", "", ("task", "mean"), [(name, f"{means[name]:.2f}") for name in names])
        bars = Panel(marks=[Bars(at=names, length=means)], x=Axis(names=names))
        yield Chart(panels=[bars], title=f"Mean of each task of {dataset}")
