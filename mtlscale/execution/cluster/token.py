"""Token of a cluster that wants one: found wherever a process starts, one line of error where it is missing."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from pathlib import Path

from mtlscale.config import UserError

_ASK_SECONDS = 8.0
# Run in a separate process: Ray asks for twenty seconds, and its warnings go past Python to standard error.
_TOKEN_SCRIPT = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"


def make_absolute() -> None:
    """Make the path of the token's file absolute: Ray starts its processes in other folders, where it is not found."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if path:
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(Path(path).expanduser().absolute())


def use_token() -> None:
    """Make Ray send its token where one is named in the environment; call before Ray is imported.

    Raises:
        UserError: If the token's file has none.
    """
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


def provide() -> None:
    """Provide a token for a local Ray where it cannot keep one, in a home folder that is not there; before Ray starts.

    Ray writes one to `~/.ray`, and ends where that fails.
    """
    if {"RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"} & os.environ.keys():
        return
    try:
        folder = Path.home() / ".ray"
        folder.mkdir(parents=True, exist_ok=True)
        writable = (folder / "auth_token").is_file() or os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):
        writable = False
    if not writable:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def check_token(address: str) -> None:
    """Raise `UserError` if the cluster gets no token or a wrong one; Ray reports other mistakes itself."""
    with subprocess.Popen(
        [sys.executable, "-c", _TOKEN_SCRIPT, address], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        timer = threading.Timer(_ASK_SECONDS, process.kill)
        timer.start()
        try:
            refused = any("InvalidAuthToken" in line or "AuthenticationError" in line for line in process.stderr)
        finally:
            timer.cancel()
            process.kill()

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
