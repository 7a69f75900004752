"""A worker's allocator keeps what a step freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from mtlscale.execution.workers.worker import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    return torch.ones(16 << 20)  # 64 MiB: beyond the sizes for which glibc adapts by itself

def measured():
    for _ in range(20):  # aligned blocks need a few rounds to settle
        step()
    before = faults()
    for _ in range(5):
        step()
    return faults() - before

print(measured())
assert keep_freed_memory()
print(measured())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_large_tensors_are_not_mapped_anew_in_every_step() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    by_default, kept = map(int, done.stdout.split())
    assert 3 * kept < by_default, (kept, by_default)
