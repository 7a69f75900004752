from mtlscale.report import column


@column(
    "worst_task", title="worst task", better="higher", explain="the main metric of the weakest task", mlflow="worst"
)
def worst_task(frame):
    return frame.main_values.min(axis=1)
