"""MATLAB files: scipy's reader, which a damaged file may bring down with the whole process, tried in one of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

_TRY = "import sys; from scipy.io import loadmat; loadmat(sys.argv[1])"


def read_mat(path: Path) -> dict[str, Any]:
    """What a file holds, by name. `ValueError` where it is none, or damaged."""
    from scipy.io import loadmat

    done = subprocess.run([sys.executable, "-c", _TRY, str(path)], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise ValueError(said[-1] if said and done.returncode > 0 else "its reader crashed")
    return dict(loadmat(path))
