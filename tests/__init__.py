"""The tests, and the checker of types and shapes that they put on all functions of cavity (named in pyproject.toml)."""

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do for a float, and a float for a complex


def checked(function):
    """`function` with its types checked; the front is left alone, for it must answer to wrong types itself."""
    return function if function.__module__ == "cavity.classifier" else _check(function)
