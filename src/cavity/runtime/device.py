"""Devices: which one to train and predict on."""

from __future__ import annotations

import os

import torch

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is a GPU where there is one."""
    if name == "auto":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={name!r} cannot be used ({error}); 'auto', 'cpu' or 'cuda' may be") from None


def untraced(device: torch.device) -> torch.inference_mode:
    """Small operations take a quarter less time where nothing can be traced; a GPU replays them anyway."""
    return torch.inference_mode(device.type == "cpu")
