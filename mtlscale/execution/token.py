"""The token of a cluster that wants one: found wherever a process starts, and missed in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from mtlscale.spec import UserError

_ASK_SECONDS = 8.0
# In a process of its own: Ray asks for twenty seconds, and its warnings go past Python to standard error.
_ASK = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


def make_absolute() -> None:
    """Name the token's file by its whole path: Ray starts its processes in other folders, which would not find it."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if path:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(Path(path).expanduser().absolute())


def use_token() -> None:
    """Make Ray send its token where one is named in the environment, before it is imported. `UserError` where the
    token's file has none."""
    make_absolute()
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if path and not os.environ.get("RAY_AUTH_TOKEN"):
        try:
            empty = not Path(path).read_text().strip()
        except (OSError, ValueError) as error:
            raise UserError(f"RAY_AUTH_TOKEN_PATH {path} cannot be read ({type(error).__name__})") from None
        if empty:
            raise UserError(f"RAY_AUTH_TOKEN_PATH {path} is empty; it should hold the cluster's token")
    if path or os.environ.get("RAY_AUTH_TOKEN"):
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def check_token(address: str) -> None:
    """`UserError` where the cluster wants a token and gets none, or a wrong one; other mistakes Ray tells itself."""
    with subprocess.Popen(
        [sys.executable, "-c", _ASK, address], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stderr is not None
        late = threading.Timer(_ASK_SECONDS, asking.kill)
        late.start()
        try:
            refused = any("InvalidAuthToken" in line or "AuthenticationError" in line for line in asking.stderr)
        finally:
            late.cancel()
            asking.kill()
    if not refused:
        return
    if os.environ.get("RAY_AUTH_MODE") == "token" and {"RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"} & os.environ.keys():
        raise UserError(
            f"the Ray cluster at {address} refuses the token; set RAY_AUTH_TOKEN_PATH to the absolute path of the file "
            "with its own"
        )
    raise UserError(
        f"the Ray cluster at {address} wants a token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (absolute path "
        "of its file)"
    )
