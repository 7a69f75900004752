"""Records as they are contributed: nothing of them tells the machine or its user, and no run id changes."""

from __future__ import annotations

import pytest

from mtlscale.records import RunRecord
from mtlscale.records.submission_schema import records_hash, redacted


def record(**fields: object) -> RunRecord:
    given = {"run_id": "r", "experiment": "e", "dataset": "d", "method": "m", "seed": 0, "status": "failed"}
    rest = {"spec": {}, "fingerprint": "f", "higher_is_better": {}, "main_metrics": {}}
    return RunRecord.model_validate({**given, **rest, **fields})


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("/home/me/data/x.txt is not there", "x.txt is not there"),
        ("cannot read '/data/my set/y.bin'", "cannot read 'my set/y.bin'"),
        (r"C:\Users\me\z.csv is damaged", "z.csv is damaged"),
        ("~/work/model.pt: no", "model.pt: no"),
        ("s3://bucket/a/b does not answer", "s3://bucket/a/b does not answer"),
        ("and/or 3/4 of it; see https://host/page/x", "and/or 3/4 of it; see https://host/page/x"),
        ("worker on box7 of anna died", "worker on … of … died"),
        ("box72 and hannah", "box72 and hannah"),
    ],
)
def test_of_a_path_the_last_part_is_left_and_of_names_nothing(said: str, left: str) -> None:
    assert redacted(record(error=said), ["box7", "anna"]).error == left


def test_files_in_a_spec_keep_their_name_and_hash() -> None:
    spec = {"encoder": {"vectors": {"file": "/srv/glove/v.txt", "sha256": "ab"}, "hidden": [3]}, "seed": 0}
    found = redacted(record(spec=spec))
    assert found.spec["encoder"] == {"vectors": {"file": "v.txt", "sha256": "ab"}, "hidden": [3]}
    assert found.error is None and spec["encoder"]["vectors"]["file"] == "/srv/glove/v.txt"  # type: ignore[index]


def test_the_hash_of_records_does_not_depend_on_line_ends() -> None:
    assert records_hash(b"{}\n{}\n") == records_hash(b"{}\r\n{}\r\n") != records_hash(b"{}\n")
