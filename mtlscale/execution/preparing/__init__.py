"""Preparation of data sets through Ray."""

from mtlscale.config.registry.import_order import use_own_pipelines

use_own_pipelines()
