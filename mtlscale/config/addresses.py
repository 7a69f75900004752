"""Addresses without their secrets, for messages, logs, records and pages."""

from __future__ import annotations

import re

_HIDDEN = "***"
_USER = re.compile(
    r"(?P<scheme>\b[A-Za-z][\w+.-]*)://"
    # Up to the last @, since a password may hold one; an http address ends its first part at a slash.
    r"(?P<secret>(?:(?<=http://)|(?<=https://))[^\s/?#'\"<>]*|(?<!http://)(?<!https://)[^\s'\"<>]*)@"
)
_PARAMETER = re.compile(
    r"(?P<key>[?&;][\w.-]*(?:pass|passwd|password|pwd|secret|token|key|signature|sig|credential|odbc_connect)=)"
    r"[^\s&;'\"<>]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text with `***` for the passwords and keys of all addresses in it.

    `postgresql://me:secret@host/db?sslpassword=other` becomes `postgresql://me:***@host/db?sslpassword=***`. A user
    without a password stays for a database; before an HTTP server it is a token and goes, too.
    """
    return _PARAMETER.sub(rf"\g<key>{_HIDDEN}", _USER.sub(_masked, text)) if "://" in text else text


def _masked(match: re.Match[str]) -> str:
    scheme, secret = match["scheme"], match["secret"]
    user, colon, _ = secret.partition(":")
    if "/" in user:
        return match[0]  # a path with an @ in it
    if not colon:
        user = "" if scheme.lower() in ("http", "https") else user
        return f"{scheme}://{user or _HIDDEN}@"
    return f"{scheme}://{user}:{_HIDDEN}@"
