# Written by `python tests/house/stubs.py`.
from mtlscale.batched.eligibility.planning import CostEstimate as CostEstimate
from mtlscale.batched.trainer import BatchedTrainer as BatchedTrainer
