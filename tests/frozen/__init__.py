"""Cases whose numbers are frozen, the tools that freeze and compare them, and the numbers."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))  # also for programs outside the tests
