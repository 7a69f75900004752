from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlscale.data.sampling.splits import carve_validation, hash_split, uniform_hash

FRACTIONS = {"train": 0.6, "val": 0.2, "test": 0.2}


@settings(max_examples=30)
@given(st.text(max_size=30), st.text(max_size=10))
def test_hash_is_in_the_unit_interval_and_depends_on_the_salt(id: str, salt: str) -> None:
    assert 0.0 <= uniform_hash(id, salt) < 1.0
    assert uniform_hash(id, salt) == uniform_hash(id, salt) != uniform_hash(id, salt + "x")


def test_values_are_frozen() -> None:
    """Another hash would move samples between splits and make finished runs wrong."""
    assert uniform_hash("comp.graphics/38758", "newsgroups") == pytest.approx(0.7494090725, abs=1e-10)
    assert [hash_split(f"sample{i}", FRACTIONS, "salt") for i in range(8)] == [
        *("train", "train", "test", "train", "train", "train", "val", "val")
    ]


def test_fractions_are_kept() -> None:
    counts = Counter(hash_split(f"id/{i}", FRACTIONS) for i in range(20_000))
    for split, fraction in FRACTIONS.items():
        assert counts[split] / 20_000 == pytest.approx(fraction, abs=0.012)  # 3.5 standard deviations


@settings(max_examples=50)
@given(st.text(max_size=30))
def test_a_larger_validation_part_contains_the_smaller(id: str) -> None:
    assert carve_validation(id, 0.1) == "train" or carve_validation(id, 0.3) == "val"


def test_rounding_of_fractions_loses_no_sample() -> None:
    assert {hash_split(str(i), {"a": 0.1, "b": 0.2}) for i in range(200)} == {"a", "b"}
