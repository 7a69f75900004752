"""Preparation of data sets through Ray."""

from mtlscale.config.registry.own_pipelines import use_own_pipelines

use_own_pipelines()
