"""What goes wrong, as exceptions.

Every error of the native library is an :class:`Error` with a ``code`` that says what to do next; the common codes have
a class of their own that is also the builtin exception a Python programmer would expect.
"""


class Error(Exception):
    """An error of spyre-inference. The message is one line with the offending names and numbers."""

    #: One of invalid_argument, not_found, corrupt_data, unsupported, rule_violation, failed_precondition,
    #: resource_exhausted, unavailable, cancelled, internal.
    code: str = "internal"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidArgumentError(Error, ValueError):
    """The caller's words are wrong: change the request or the setting."""

    code = "invalid_argument"


class NotFoundError(Error, FileNotFoundError):
    """A named file, tensor, model or plugin does not exist."""

    code = "not_found"


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but not built: use another model, dtype, field or platform."""

    code = "unsupported"


class ResourceExhaustedError(Error, MemoryError):
    """Memory, blocks or a limit: ask for less or give more."""

    code = "resource_exhausted"


_CLASSES = {kind.code: kind for kind in (InvalidArgumentError, NotFoundError, UnsupportedError, ResourceExhaustedError)}


def from_code(code: str, message: str) -> Error:
    """The exception of an error of the native library, which calls this."""
    return _CLASSES.get(code, Error)(message, code)
