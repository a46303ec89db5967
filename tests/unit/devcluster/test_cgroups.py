"""What a container is held to, from the files of both versions of the cgroup file system."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlscaler_dev.cluster.realnode import cgroups
from rlscaler_dev.cluster.realnode.cgroups import Amounts, ContainerCgroup, amounts
from rlscaler_dev.exceptions import DevClusterError

TWO = {"cpu.weight": "6\n", "cpu.max": "60000 100000\n", "memory.max": "134217728\n", "memory.current": "1048576\n"}
ONE = {
    "cpu.shares": "153\n",
    "cpu.cfs_quota_us": "60000\n",
    "cpu.cfs_period_us": "100000\n",
    "memory.limit_in_bytes": "134217728\n",
    "memory.usage_in_bytes": "1048576\n",
}


def test_both_versions_say_the_same() -> None:
    assert amounts(TWO) == Amounts(6, 0.6, 2**27, 2**20)
    assert amounts(ONE) == Amounts(153, 0.6, 2**27, 2**20)


def test_no_limit_is_infinity() -> None:
    two = amounts(TWO | {"cpu.max": "max 100000\n", "memory.max": "max\n"})
    one = amounts(ONE | {"cpu.cfs_quota_us": "-1\n", "memory.limit_in_bytes": "9223372036854771712\n"})
    assert (two.cores, two.memory) == (one.cores, one.memory) == (math.inf, math.inf)


def write(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)


def test_a_container_is_found_by_its_identity_in_one_hierarchy_or_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, memory = ({name: ONE[name] for name in ONE if name.startswith(of)} for of in ("cpu", "memory"))
    write(tmp_path / "cpu" / "kubepods" / "pod1" / "first", cpu)
    write(tmp_path / "memory" / "kubepods" / "pod1" / "first", memory)
    write(tmp_path / "unified" / "kubepods" / "pod2" / "second", TWO)
    tops = [tmp_path / name for name in ("cpu", "memory", "unified")]
    monkeypatch.setattr(cgroups, "remaining", lambda cluster: tops)
    assert ContainerCgroup.of("any", "first").read() == amounts(ONE)
    assert ContainerCgroup.of("any", "second").read() == amounts(TWO)
    with pytest.raises(DevClusterError, match="container third of cluster any has no cgroup"):
        ContainerCgroup.of("any", "third")
