"""A worker's allocator keeps what a step freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from mtlscale.execution.workers.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    return torch.ones(16 << 20)  # 64 MiB: beyond the sizes for which glibc adapts by itself

for _ in range(20):  # aligned blocks need a few rounds to settle
    step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_large_tensors_are_not_mapped_anew_in_every_step() -> None:
    faults = {
        mode: int(subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, check=True).stdout)
        for mode in ("default", "keep")
    }
    assert 3 * faults["keep"] < faults["default"], faults
