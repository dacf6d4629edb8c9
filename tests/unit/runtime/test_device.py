"""Choosing a device."""

import pytest

from cavity.runtime.device import choose_device


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match=r"device must be .*, got 'abacus'"):
        choose_device("abacus")
    assert choose_device("cpu").type == "cpu"
