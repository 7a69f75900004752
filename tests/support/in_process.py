"""Preparation in this process, whatever the pipeline says: most tests of pipelines look at samples, not at Ray."""

from __future__ import annotations

from functools import partial

from mtlscale.execution.preparing.prepare import prepare as prepare_with

prepare = partial(prepare_with, engine="local")
