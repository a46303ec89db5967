"""Where binaries come from: the user's PATH, our cache, upstream's release, a build, in this order."""

from __future__ import annotations

import pytest

from rlscaler_dev.cluster.binaries import BUILD, CACHE, PATH, RELEASE, Found, choose
from rlscaler_dev.cluster.versions import TOOLS, pinned

APISERVER = TOOLS["kube-apiserver"]
GOOD = Found("/usr/bin/kube-apiserver", pinned(APISERVER))
OLD = Found("/opt/kube-apiserver", (1, 20, 0))


def never() -> bool:
    raise AssertionError("the network was asked although the binary is there")


def test_a_compatible_binary_on_path_comes_first() -> None:
    chosen = choose(APISERVER, [GOOD], "/cache/kube-apiserver", never)
    assert (chosen.source, chosen.path) == (PATH, GOOD.path)


def test_an_incompatible_one_is_passed_over() -> None:
    chosen = choose(APISERVER, [OLD], "/cache/kube-apiserver", never)
    assert (chosen.source, chosen.path) == (CACHE, "/cache/kube-apiserver")


@pytest.mark.parametrize(("reachable", "source"), [(True, RELEASE), (False, BUILD)])
def test_a_release_where_the_network_allows_it_else_a_build(reachable: bool, source: str) -> None:
    assert choose(APISERVER, [], None, lambda: reachable).source == source


def test_asking_for_a_build_ignores_path_and_network() -> None:
    assert choose(APISERVER, [GOOD], None, never, source=BUILD).source == BUILD
