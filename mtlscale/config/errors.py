"""Errors that the user can correct."""


class UserError(Exception):
    """The user's mistake: one line that names it and its remedy, exit status 2, never a traceback."""
