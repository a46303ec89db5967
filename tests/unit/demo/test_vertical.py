"""The demo of sizes without a cluster: days, contenders, and the steps on an API server that is a dictionary."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from rlscaler_dev.demo.vertical import play as played
from rlscaler_dev.demo.vertical.draw import draw
from rlscaler_dev.demo.vertical.play import Play, play, resources, table
from rlscaler_dev.demo.vertical.services import LEAST_PODS, SERVICES, Figures, Use, day, replicas
from rlscaler_dev.demo.vertical.sizers import CONTENDERS, begun, chosen_scale, fixed, template
from rlscaler_dev.demo.vertical.sizers import played as simulated
from rlscaler_dev.exceptions import DemoError


class Server:
    """Deployments and pods; a patch of `resize` is done at once unless kubelets are `deaf`."""

    def __init__(self, deaf: bool = False) -> None:
        self.deaf = deaf
        self.deployments: dict[str, Any] = {}
        self.pods: dict[str, dict[str, Any]] = {}

    def create(self, manifest: Any) -> bool:
        return True

    def apply_all(self, manifests: Any) -> None:
        list(manifests)

    def delete(self, path: str) -> None:
        self.deployments.pop(path.rsplit("/", 1)[1], None)

    def apply(self, manifest: Any) -> None:
        self.deployments[manifest["metadata"]["name"]] = manifest

    def request(self, method: str, path: str, body: Any, content_type: str) -> None:
        self._resize(self.pods[path.split("/")[-2]], body["spec"]["containers"][0]["resources"])

    def merge(self, path: str, body: Any) -> None:
        name = path.split("/")[-2]
        template = self.deployments[name]["spec"]["template"]["spec"]["containers"][0]["resources"]
        self.pods = {key: pod for key, pod in self.pods.items() if pod["app"] != name}
        for number in range(body["spec"]["replicas"]):
            pod = {"metadata": {"name": f"{name}-{number}"}, "app": name, "spec": {"containers": [{}]}, "status": {}}
            self.pods[f"{name}-{number}"] = pod
            self._resize(pod, template)

    def _resize(self, pod: Any, size: Any) -> None:
        pod["spec"]["containers"][0]["resources"] = size
        if not self.deaf:
            pod["status"] = {"containerStatuses": [{"resources": size}]}

    def get(self, path: str) -> Any:
        (app,) = re.findall(r"app%3D(.+)$", path)
        return {"items": [pod for pod in self.pods.values() if pod["app"] == app]}


def test_contenders_are_played_beside_each_other_on_the_api_server() -> None:
    lines: list[str] = []
    this, services = Play(steps=14), SERVICES[1:]
    courses = play(Server(), CONTENDERS[:3], services, this, lines.append)
    cost = {(course.contender.name, course.service.name): course.figures.dollars for course in courses}
    for service in services:
        assert cost["rlscaler", service.name] < 0.85 * cost["alone", service.name], "templates ask for twice the need"
        assert cost["vpa", service.name] < 0.85 * cost["alone", service.name]
    for course in courses:
        assert [row["pods"] for row in course.rows] == [
            replicas(rate, course.scale) for rate in day(course.service, this.seed + 1)[: this.steps]
        ]
        assert (course.figures.resizes > 0) == (course.contender.name != "alone")
        assert all(row["used_cores"] > 0 for row in course.rows)
    assert [line.split(":")[0].strip() for line in lines] == ["0.0 h", "2.0 h", "2.2 h"]
    assert "| mixed | replicas alone | 1 |" in table(courses)
    assert json.loads(json.dumps(played.plain(courses, this)))["play"]["steps"] == 14


@pytest.mark.slow
def test_the_courses_have_a_picture(tmp_path) -> None:
    draw(play(Server(), CONTENDERS, SERVICES, Play(steps=3), lambda line: None), tmp_path / "vertical.png")
    assert (tmp_path / "vertical.png").stat().st_size > 20_000


def test_pods_that_do_not_get_their_size_end_the_demo(monkeypatch) -> None:
    monkeypatch.setattr(played, "SETTLE_SECONDS", 0.2)
    with pytest.raises(DemoError, match=r"alone-cpu-bound: 2 pods did not run with their size in 0\.2 s"):
        play(Server(deaf=True), CONTENDERS[:1], SERVICES[:1], Play(steps=1), lambda line: None)


def test_few_large_pods_are_chosen_for_performance_and_the_cheapest_for_cost() -> None:
    service = SERVICES[0]
    rate, results = day(service, 1), {}
    scales = {reward: chosen_scale(service, rate, reward) for reward in ("cost", "performance")}
    for reward, scale in scales.items():
        size = template(service, rate, 1.0, scale)
        results[reward], _ = simulated(service, rate, size, fixed(size), scale)
    assert scales["performance"] > scales["cost"]
    assert results["cost"].dollars < results["performance"].dollars
    assert results["performance"].response_ms < results["cost"].response_ms


def test_sizes_are_learned_on_the_day_before() -> None:
    (alone, vpa, rlscaler, _), service = CONTENDERS, SERVICES[2]
    sizes = {contender: begun(contender, service, 1, 3.0, "cost").size for contender in (alone, vpa, rlscaler)}
    need = template(service, day(service, 1), 1.0)
    np.testing.assert_allclose(sizes[alone], np.multiply(3.0, need))
    for contender in (vpa, rlscaler):
        assert 0.8 * need[0] < sizes[contender][0] < 1.5 * need[0]
        assert 0.8 * need[1] < sizes[contender][1] < 1.5 * need[1]


def test_a_pod_above_its_memory_limit_is_killed_and_one_above_its_cpu_limit_is_late() -> None:
    figures = Figures()
    use = Use(np.array([10.0, 10.0, 10.0]), np.array([1.0, 4.0, 1.0]), np.array([100.0, 100.0, 130.0]))
    killed = figures.add(SERVICES[0], use, np.ones(3), np.full(3, 100.0))
    assert killed.tolist() == [False, False, True]
    assert figures.late_percent == pytest.approx(100 * (5 + 10) / 30)
    assert figures.killed == 1
    # 40 ms of work on a core of its own, and 5 s where none is left.
    assert figures.response_ms == pytest.approx((40 + 5000 + 40) / 3)


def test_limits_keep_their_ratio_and_the_least_pods_stay() -> None:
    assert resources((0.4, 512 * 2.0**20)) == {
        "requests": {"cpu": "400m", "memory": "512Mi"},
        "limits": {"cpu": "800m", "memory": "640Mi"},
    }
    assert replicas(0.0, 4.0) == LEAST_PODS
