"""The one exception a user sees: a sentence that names the value, the limit and the fix."""


class CelerisError(Exception):
    """A mistake the user can mend. The root scripts print it as one line and exit with status 2."""
