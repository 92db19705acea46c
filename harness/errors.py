"""The error that a user can mend. A leaf module: every room may import it."""


class UserError(Exception):
    """Unusable input or environment: one line that names the file or key and the mend.

    The command line prints it without a traceback and exits with code 2.
    """
