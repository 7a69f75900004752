"""A setting more is a decision: those of all shipped components are frozen in `knobs.txt`, with their defaults."""

from __future__ import annotations

from house import knobs


def test_no_setting_is_new_or_gone_and_defaults_stay() -> None:
    found = knobs.changes(knobs.written(), knobs.declared())
    assert not found, "\n".join([*found, f"if that was decided: {knobs.COMMAND}, and a line in CHANGELOG.md"])


def test_each_change_is_named() -> None:
    before = {"balancers getmtl eps": "0.025", "encoders mlp width": "64"}
    after = {"balancers getmtl eps": "0.05", "encoders mlp depth": "2"}
    assert knobs.changes(before, after) == [
        "encoders mlp depth is new",
        "encoders mlp width is gone",
        "balancers getmtl eps is 0.05 by default, and was 0.025",
    ]
    assert knobs.changes(before, before) == []
