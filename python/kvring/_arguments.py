"""Checks of plain arguments: each gives the value, or an error that names it and what would work."""

import operator

import numpy as np

from ._errors import InvalidArgument


def flag(name, value):
    """Give a bool; numbers and strings are none."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidArgument(f"{name} is {value!r}; it must be True or False")


def integer(name, value, least=-(2**63), most=2**63 - 1):
    """Give an int of least to most; by default the library checks the range."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise InvalidArgument(f"{name} is {value!r}; it must be an integer from {least} to {most}")
    return number


def real(name, value):
    """Give a float; its range is checked by the library."""
    if not isinstance(value, (bool, str, bytes)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidArgument(f"{name} is {value!r}; it must be a real number")


def choice(name, value, enum):
    """Give the member of an enum by its name."""
    names = [member.name.replace("_", "-") for member in enum]
    if isinstance(value, str) and value in names:
        return enum[value.replace("-", "_")]
    raise InvalidArgument(f"{name} is {value!r}; it must be one of {', '.join(map(repr, names))}")


def window(value):
    """Give (left, right)."""
    try:
        left, right = value
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"window_size is {value!r}; it must be a pair (left, right) such as (128, 0), -1 for unlimited"
        ) from None
    return integer("window_size[0]", left), integer("window_size[1]", right)


def offsets(name, value):
    """Give cumulative lengths of documents as a list of ints; None gives an empty list."""
    if value is None:
        return []
    try:
        entries = _entries(value)
    except TypeError:
        raise InvalidArgument(
            f"{name} is {value!r}; it must be a sequence of integers, such as [0, 5, 8]"
        ) from None
    if not entries:
        raise InvalidArgument(
            f"{name} has no entries; it needs one more than there are documents, or leave it out"
        )
    return [integer(f"{name}[{i}]", entry) for i, entry in enumerate(entries)]


def logits(name, value):
    """Give a list of floats; None stays None."""
    if value is None:
        return None
    try:
        return [float(entry) for entry in _entries(value)]
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is {value!r}; it must be a sequence of real numbers") from None


def _entries(value):
    # Arrays of every package give their elements as Python numbers, wherever they are.
    return list(value.tolist() if hasattr(value, "tolist") else value)
