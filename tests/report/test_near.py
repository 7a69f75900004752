from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.charts.label_placement import FAR_FLOOR, with_room, without_far_floor


def scores(**values: float) -> pd.Series[float]:
    return pd.Series(values)


def test_a_floor_far_off_is_left_out_and_intervals_are_not() -> None:
    found = without_far_floor(scores(a=90.0, b=92.0, constant=50.0), scores(a=1.0, b=np.nan, constant=0.0))
    assert found is not None
    assert found[0] < 89.0 and 92.0 < found[1] < 92.5


def test_a_floor_nearby_stays() -> None:
    near = scores(a=90.0, b=92.0, constant=87.0)
    assert without_far_floor(near, near * 0) is None
    assert without_far_floor(near.drop(FAR_FLOOR), near * 0) is None
    alone = scores(a=90.0, constant=0.0)
    assert without_far_floor(alone, alone * 0) is None


def test_names_that_would_cover_each_other_give_way_to_those_that_choose_first() -> None:
    assert with_room([0, 0, 1], [0, 0.01, 1], [False, True, False]) == [False, True, True]
    assert with_room([0, 0, 1], [0, 0.5, 1], [False] * 3) == [True] * 3
    assert with_room([], [], []) == []
    assert with_room([3], [4], [False]) == [True]
