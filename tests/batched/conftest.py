"""Trials of one experiment, batched and alone."""

from __future__ import annotations

import pytest

from mtlscale.data.readers.prepared import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return load_prepared(prepare("digits", {}, None, tmp_path_factory.mktemp("home")))
