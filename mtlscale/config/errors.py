"""Errors that the user can correct."""

from mtlscale.config.addresses import without_secrets


class UserError(Exception):
    """The user's mistake: one line that names it and its remedy, exit status 2, never a traceback.

    No password of an address gets into it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(without_secrets(message))
