from mtlscale.report import section, text_sheet
from mtlscale.report.charts.chart import Bars, Chart, Panel


@section("hardest_task", title="The hardest task")
def hardest_task(view):
    for dataset, table in view.tables.items():
        means = table.rows[[table.main_column(task) for task in table.tasks]].mean()
        yield f"On {dataset} the methods are worst at {means.idxmin()}: {means.min():.1f} on average."
        yield text_sheet(
            f"Tasks of {dataset}", "", ("task", "mean"), [(task, f"{mean:.2f}") for task, mean in means.items()]
        )
        yield Chart(panels=[Panel(marks=[Bars(at=means.index, length=means)])], title=f"Mean of each task of {dataset}")
