"""The error that a user can fix."""


class UserError(Exception):
    """Invalid input or environment: one line with the file or key and the fix; the command line exits with code 2."""
