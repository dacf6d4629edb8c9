"""Whether a launcher has started this process as one of several. Loads no torch."""

from __future__ import annotations

import os

GROUP = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # variables that describe a process group
OF_TORCHRUN = ("TORCHELASTIC_RUN_ID", "LOCAL_RANK")  # that other launchers do not set


def is_under_torchrun() -> bool:
    """Whether torchrun has started this process, with all its variables."""
    return not missing_variables(*GROUP, *OF_TORCHRUN)


def missing_variables(*names: str) -> list[str]:
    """Return the names of environment variables that are not set."""
    return [name for name in names if not os.environ.get(name)]


def is_main_process(distributed: bool | str = "auto") -> bool:
    """Whether this process prints and writes: the first of several that train together, or a single one."""
    is_one_of_several = is_under_torchrun() if distributed == "auto" else distributed
    return not is_one_of_several or int(os.environ.get("RANK", "0")) == 0
