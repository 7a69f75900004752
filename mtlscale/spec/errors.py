"""What a user did wrong."""


class UserError(Exception):
    """A mistake of the user's: one line that names it and its mend, exit status 2, never a traceback."""
