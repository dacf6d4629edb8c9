"""Memory that is left: of the system, and of the control groups of both versions."""

import pytest
import torch

from cavity.runtime.memory import available_bytes, cgroup_bytes


def test_this_machine_has_some():
    found = available_bytes(torch.device("cpu"))
    assert found is not None
    assert 10**6 < found < 10**15


def test_of_other_devices_nothing_is_known():
    assert available_bytes(torch.device("meta")) is None


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def v2(limit, usage, inactive=0):
    stat = f"anon 5\ninactive_file {inactive}\nactive_file 7\n"
    return {"memory.max": f"{limit}\n", "memory.current": f"{usage}\n", "memory.stat": stat}


def v1(limit, usage, inactive=0):
    stat = f"cache 5\ninactive_file 1\ntotal_inactive_file {inactive}\n"
    return {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": f"{usage}\n", "memory.stat": stat}


def groups(root, line, mount, by_path):
    write(root, {"proc/self/cgroup": line})
    for path, files in by_path.items():
        write(root / mount / path, files)


@pytest.mark.parametrize(
    ("line", "mount", "version"),
    [("0::/a/b\n", "sys/fs/cgroup", v2), ("3:cpu:/\n4:memory,pids:/a/b\n", "sys/fs/cgroup/memory", v1)],
)
class TestGroups:
    def test_the_limit_less_what_is_used(self, tmp_path, line, mount, version):
        groups(tmp_path, line, mount, {"a/b": version(1000, 300)})
        assert cgroup_bytes(tmp_path) == 700

    def test_cached_files_are_given_up(self, tmp_path, line, mount, version):
        groups(tmp_path, line, mount, {"a/b": version(1000, 300, inactive=100)})
        assert cgroup_bytes(tmp_path) == 800

    def test_a_group_above_may_be_tighter(self, tmp_path, line, mount, version):
        groups(tmp_path, line, mount, {"a/b": version(1000, 300), "a": version(900, 500)})
        assert cgroup_bytes(tmp_path) == 400

    def test_inside_a_container_the_mount_is_the_group(self, tmp_path, line, mount, version):
        groups(tmp_path, line, mount, {".": version(1000, 300)})
        assert cgroup_bytes(tmp_path) == 700

    def test_more_used_than_allowed_is_none_left(self, tmp_path, line, mount, version):
        groups(tmp_path, line, mount, {"a/b": version(1000, 1300)})
        assert cgroup_bytes(tmp_path) == 0

    def test_no_limit_is_no_number(self, tmp_path, line, mount, version):
        groups(tmp_path, line, mount, {"a/b": version("max", 300)})
        assert cgroup_bytes(tmp_path) is None


def test_without_groups_there_is_no_limit(tmp_path):
    assert cgroup_bytes(tmp_path) is None
