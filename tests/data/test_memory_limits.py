"""Limits of memory, read from the files in which kernels keep them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from mtlscale.data.memory_limits import CgroupMemory, address_space, cgroup_memory, kills


def test_the_group_that_leaves_least_counts_in_version_two(tmp_path: Path) -> None:
    inner, outer = tmp_path / "fs" / "job" / "worker", tmp_path / "fs" / "job"
    inner.mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/job/worker\n")
    assert cgroup_memory(tmp_path / "fs", own) is None and kills(tmp_path / "fs", own) == 0

    for folder, limit, used, cache in ((inner, "max", 300, 0), (outer, "1000", 900, 500)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\n")
        (folder / "memory.events").write_text("low 0\noom_kill 2\n")
    assert cgroup_memory(tmp_path / "fs", own) == CgroupMemory(limit=1000, free=600)
    assert kills(tmp_path / "fs", own) == 2


def test_version_one_and_a_container_that_sees_the_hosts_path(tmp_path: Path) -> None:
    root = tmp_path / "fs" / "memory"
    root.mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("5:cpu:/\n4:memory:/docker/abc\n")
    (root / "memory.limit_in_bytes").write_text("2000")
    (root / "memory.usage_in_bytes").write_text("500")
    (root / "memory.stat").write_text("total_inactive_file 100\n")
    (root / "memory.oom_control").write_text("oom_kill_disable 0\noom_kill 1\n")
    assert cgroup_memory(tmp_path / "fs", own) == CgroupMemory(limit=2000, free=1600)
    assert kills(tmp_path / "fs", own) == 1
    (root / "memory.limit_in_bytes").write_text(str(2**63 - 4096))  # no limit
    assert cgroup_memory(tmp_path / "fs", own) is None


def test_a_limited_address_space_is_seen() -> None:
    code = (
        "import resource; from mtlscale.data.memory_limits import address_space; print(address_space()); "
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY)); print(address_space())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unlimited, limited = done.stdout.splitlines()
    limit, free = ast.literal_eval(limited)
    assert unlimited == "None" and limit == 3 << 30 and 0 < free < limit
    assert address_space(Path("/nowhere")) is None
