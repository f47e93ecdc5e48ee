"""What goes wrong, as exceptions.

Every error of the native library is an :class:`Error` with a ``code`` that says what to do next; the common codes have a
class of their own that is also the builtin exception a Python programmer would expect.
"""


class Error(Exception):
    """An error of spyre-inference. The message is one line with the offending names and numbers."""

    #: One of invalid_argument, not_found, corrupt_data, unsupported, rule_violation, failed_precondition,
    #: resource_exhausted, unavailable, cancelled, internal.
    code: str

    def __init__(self, message: str, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class InvalidArgumentError(Error, ValueError):
    """The caller's words are wrong: change the request or the setting."""


class NotFoundError(Error, FileNotFoundError):
    """A named file, tensor, model or plugin does not exist."""


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but not built: use another model, dtype, field or platform."""


class ResourceExhaustedError(Error, MemoryError):
    """Memory, blocks or a limit: ask for less or give more."""
