"""Devices and dtypes: where to train and predict."""

from __future__ import annotations

import os

import torch

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def choose_device(name: str) -> torch.device:
    """Return the torch device called `name`; "auto" is a GPU if there is one.

    Raises:
        ValueError: if torch does not know the device or cannot use it.
    """
    if name == "auto":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device must be 'auto', 'cpu', 'cuda' or another torch device, got {name!r}: {error}"
        ) from None


def without_autograd(device: torch.device) -> torch.inference_mode:
    """Return a context without autograd on a CPU, where small operations then take a quarter less time.

    A GPU replays recorded steps, which cost the same either way.
    """
    return torch.inference_mode(device.type == "cpu")
