"""Addresses hold passwords; what is shown of them does not."""

from __future__ import annotations

import json
import logging

import pytest

from mtlscale.config import UserError, load_experiment, without_secrets
from mtlscale.execution.monitoring import _JsonFormatter

ADDRESSES = [
    ("postgresql://me:geheim@db/mlflow", "postgresql://me:***@db/mlflow"),
    ("postgresql+psycopg2://me:ge@he/im:x@db:5432/mlflow", "postgresql+psycopg2://me:***@db:5432/mlflow"),
    ("postgresql://db/mlflow?user=me&password=geheim", "postgresql://db/mlflow?user=me&password=***"),
    ("mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dgeheim", "mssql+pyodbc:///?odbc_connect=***"),
    ("http://me:geheim@127.0.0.1:5000/a@b", "http://me:***@127.0.0.1:5000/a@b"),
    ("https://geheim@host/", "https://***@host/"),
    ("s3://KEY:geheim@bucket/runs", "s3://KEY:***@bucket/runs"),
    ("https://host/data.zip?X-Amz-Signature=geheim&b=1", "https://host/data.zip?X-Amz-Signature=***&b=1"),
    ("https://host/data.zip?sig=geheim", "https://host/data.zip?sig=***"),
    ("--set tracking.uri=mysql://me:geheim@db/x: no", "--set tracking.uri=mysql://me:***@db/x: no"),
    ("('http://me:geheim@a', 'http://you:geheim@b')", "('http://me:***@a', 'http://you:***@b')"),
]
PLAIN = [
    "sqlite:////home/me@work/mlflow.db",
    "postgresql://me@db/mlflow",
    "http://127.0.0.1:5000/#/experiments/1",
    "s3://bucket/runs?versioned=true",
    "nothing: at all, me@home",
]


@pytest.mark.parametrize(("address", "shown"), ADDRESSES)
def test_no_password_is_shown(address: str, shown: str) -> None:
    assert without_secrets(address) == shown
    assert str(UserError(f"no MLflow answers at {address}")) == f"no MLflow answers at {shown}"
    line = logging.LogRecord("mtlscale", logging.ERROR, "", 0, "failed", None, None)
    line.text = f"no MLflow answers at {address}"
    assert "geheim" not in _JsonFormatter("name").format(line)


@pytest.mark.parametrize("address", PLAIN)
def test_what_has_no_password_stays(address: str) -> None:
    assert without_secrets(address) == address


def test_an_experiment_is_written_without_its_password() -> None:
    uri = "postgresql://me:geheim@db/mlflow"
    experiment = load_experiment("quickstart", (f"tracking.uri={uri}",))
    assert experiment.tracking.uri == uri
    for text in (experiment.model_dump_json(), json.dumps(experiment.model_dump(mode="json")), repr(experiment)):
        assert "geheim" not in text
