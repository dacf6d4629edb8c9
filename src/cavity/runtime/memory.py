"""How much memory there is to take."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def available_bytes(device: torch.device) -> int | None:
    """Bytes that can still be had on the device; None where the system does not say.

    Of a CPU what the kernel calls available, and no more than the control groups of this process leave it.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    if device.type != "cpu":
        return None
    found = [size for size in (_of_system(Path("/")), of_groups(Path("/"))) if size is not None]
    return min(found, default=None)


def _of_system(root: Path) -> int | None:
    """MemAvailable of Linux, else the free pages that POSIX knows of, else all pages."""
    lines = _text(root / "proc/meminfo").splitlines()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    if kilobytes:
        return 1024 * kilobytes[0]
    known = [name for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in getattr(os, "sysconf_names", {})]
    return os.sysconf(known[0]) * os.sysconf("SC_PAGE_SIZE") if known else None


def of_groups(root: Path) -> int | None:
    """What the memory limits of the control groups leave, those above them included; None without a limit.

    Both versions of control groups, mounted where systemd and containers mount them. Cached files do not count: the
    kernel gives them up.
    """
    rooms = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names = "memory.max", "memory.current", "inactive_file"
            rooms += [_room(group, *names) for group in _upwards(root / "sys/fs/cgroup", path)]
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            rooms += [_room(group, *names) for group in _upwards(root / "sys/fs/cgroup/memory", path)]
    return min((room for room in rooms if room is not None), default=None)


def _upwards(mount: Path, path: str) -> list[Path]:
    """The group and those above it. Inside a container its own path may mean nothing; then only the mount is left."""
    group = mount / path.lstrip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(mount))]


def _room(group: Path, limit_name: str, usage_name: str, cached_name: str) -> int | None:
    limit, usage = _text(group / limit_name).strip(), _text(group / usage_name).strip()
    if not (limit.isdigit() and usage.isdigit()):  # "max" is no limit
        return None
    stat = dict(line.split()[:2] for line in _text(group / "memory.stat").splitlines())
    return max(int(limit) - int(usage) + int(stat.get(cached_name, 0)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
