"""The tests, and the checker of types and shapes that they put on all functions of cavity (named in pyproject.toml)."""

from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do for a float, and a float for a complex
USER_INPUT = ("cavity.classifier", "cavity.fitting.settings")  # these raise errors of their own for wrong types


def checked(function):
    """`function` with its types checked, unless it takes what users give."""
    return function if function.__module__ in USER_INPUT else _check(function)
