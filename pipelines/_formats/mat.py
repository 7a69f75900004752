"""Reader for MATLAB files.

A damaged file can crash scipy's reader and the whole process with it, so each file is first tried in a process of its
own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

_TRY = "import sys; from scipy.io import loadmat; loadmat(sys.argv[1])"


def read_mat(path: Path) -> dict[str, Any]:
    """Return the variables of a file by name.

    Raises:
        ValueError: The file is damaged or no MATLAB file.
    """
    from scipy.io import loadmat

    trial = subprocess.run([sys.executable, "-c", _TRY, str(path)], capture_output=True, text=True)
    if trial.returncode != 0:
        error_lines = trial.stderr.strip().splitlines()
        raise ValueError(error_lines[-1] if error_lines and trial.returncode > 0 else "its reader crashed")
    return dict(loadmat(path))
