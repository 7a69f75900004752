"""The linear floor on a table of categories, beside scikit-learn's logistic regression on one-hot columns of its rows.

    python benchmarks/linear_floor.py $MTLSCALE_DATA/census_income

KDD Census-Income: is the income above 50,000, was the person never married? A `table` each, so that no row of the one
is a test row of the other. Prints the area under the curve on the same test rows, and exits with 1 where the floor is
more than .5 below, or above, what scikit-learn finds.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from mtlscale.config import Experiment
from mtlscale.data.readers.prepared import load_prepared, read_ids
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.training import train

NUMBERS = (0, 5, 16, 17, 18, 30, 39)  # age, wage, gains, losses, dividends, size of the employer, weeks; others: codes
WEIGHT, MARITAL, INCOME = 24, 7, 41
TOLERANCE = 0.5  # points of AUC


def read_census(folder: Path) -> pd.DataFrame:
    """Return the test part with columns c0, c1, …, texts without the blanks around them."""
    with gzip.open(folder / "census-income.test.gz", "rt", encoding="latin-1") as file:
        frame = pd.read_csv(file, header=None, skipinitialspace=True, keep_default_na=False)
    return frame.rename(columns=lambda number: f"c{number}")


def floor(table: Path, features: list[str], categorical: list[str], home: Path) -> tuple[float, dict[str, np.ndarray]]:
    """Return the linear floor's AUC on test in percent, and the rows of each split."""
    options = {"task": "task", "target": "target", "features": features, "categorical": categorical}
    folder = prepare("table", options, table, home)
    data = load_prepared(folder)
    (task,) = (one.name for one in data.suite.tasks)
    content = {
        "name": "census",
        "datasets": [{"name": "table", "options": options, "metrics": ["auroc"]}],
        "methods": ["linear"],
        "floors": [],
        "model": {"encoder": "mlp"},
    }
    experiment = Experiment.model_validate(content)
    (run,) = experiment.runs({"table": data.manifest.fingerprint})
    record = train(run, data)
    rows = {split: np.array([int(id) for id in read_ids(folder, split, task)]) for split in ("train", "test")}
    return record.metrics["test"][task]["auroc"], rows


def logistic_regression(frame: pd.DataFrame, rows: dict[str, np.ndarray], categorical: list[str]) -> float:
    """Return the AUC in percent of scikit-learn's own encoding and regression, on the same rows."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    inputs = frame.drop(columns=["task", "target"])
    numbers = [name for name in inputs if name not in categorical]
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), categorical), (StandardScaler(), numbers), sparse_threshold=1.0
    )
    model = make_pipeline(encode, LogisticRegression(max_iter=300))
    model.fit(inputs.iloc[rows["train"]], frame["target"].iloc[rows["train"]])
    scores = model.predict_proba(inputs.iloc[rows["test"]])[:, 1]
    return 100 * float(roc_auc_score(frame["target"].iloc[rows["test"]], scores))


def main(folder: Path) -> int:
    census = read_census(folder)
    targets = {
        "income": (census[f"c{INCOME}"].str.startswith("50000"), {INCOME, WEIGHT, MARITAL}),
        "never_married": (census[f"c{MARITAL}"] == "Never married", {INCOME, WEIGHT, MARITAL}),
    }
    far = 0
    print(f"{'task':14} {'linear':>8} {'scikit-learn':>13} {'s':>6}")
    for task, (target, left_out) in targets.items():
        features = [f"c{number}" for number in range(len(census.columns)) if number not in left_out]
        categorical = [name for name in features if int(name[1:]) not in NUMBERS]
        frame = census[features].assign(task=task, target=target.astype(int))
        with tempfile.TemporaryDirectory() as home:
            table = Path(home, "census.parquet")
            frame.to_parquet(table, index=False)
            started = time.perf_counter()
            ours, rows = floor(table, features, categorical, Path(home))
            seconds = time.perf_counter() - started
        theirs = logistic_regression(frame, rows, categorical)
        far += abs(ours - theirs) > TOLERANCE
        print(f"{task:14} {ours:8.2f} {theirs:13.2f} {seconds:6.1f}", flush=True)
    return int(far > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of KDD Census-Income")
    sys.exit(main(parser.parse_args().folder))
