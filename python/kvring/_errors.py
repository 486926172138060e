"""The exceptions of kvring, one for each kind of error that the C++ library knows."""


class Error(Exception):
    """Any failure that kvring reports.

    Attributes
    ----------
    code : str
        The kind, with the name that the command-line tool and its JSON use. It is the same for every error
        of one class.
    """

    code = "Internal"


class InvalidArgument(Error, ValueError):
    """A value that no call may have, or values that do not fit together."""

    code = "InvalidArgument"


class Unsupported(Error, NotImplementedError):
    """A combination or a type that kvring does not compute. The message says what to use instead."""

    code = "Unsupported"


class InputFile(Error):
    """A file that is missing, cut short or not what it says."""

    code = "InputFile"


class Transport(Error):
    """Another rank failed, or the ranks disagree."""

    code = "Transport"


class Timeout(Error, TimeoutError):
    """No rank made progress for the time allowed."""

    code = "Timeout"


class OutOfBudget(Error, MemoryError):
    """The job does not fit the memory, or the threads, that it may have."""

    code = "OutOfBudget"


class Internal(Error):
    """A fault of kvring itself: please report it."""

    code = "Internal"


# Users see them where they import them from.
for _error in (Error, InvalidArgument, Unsupported, InputFile, Transport, Timeout, OutOfBudget, Internal):
    _error.__module__ = "kvring"
del _error
