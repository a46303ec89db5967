"""What the size of pods is worth beside their number: replicas alone, with recommended sizes, and with the VPA's.

python -m benchmarks.vertical [--out FILE]

Three services play the last two days of three recorded loads that ship, a minute at a time, after a day from which
sizes are learned: one that needs CPU for its requests, one whose memory grows with its sessions and its uptime, and one
that does both. Replicas follow the load at 80 %. They are the same for all contenders but the last one, which says
about what it is worth to decide sizes and replicas together: it is told what pods of half, double and four times the
size carry, and has those that were cheapest on the day before; what a pod needs at rest is the same in all of them. A
container that wants more CPU than its limit (twice its request) answers the rest late; one that wants more memory than
its limit (a quarter above its request) is killed, answers nothing for a minute, and begins again. The template was
written by somebody who measured the day before, and asked for that, for twice, or for three times as much. Cost is what
pods ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_core.vertical.recommend import Ranges, Usage, nothing_known, recommend
from rlscaler_dev.benchmark import out_option, write
from rlscaler_rl.baselines.vpa import Vpa
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.day_splits import own_service, seconds_of_day_load, span_s
from rlscaler_rl.workloads.days import DAY, day_load

LOADS = ("servegen_small", "servegen_large", "worldcup")
GUESSES = (1.0, 2.0, 3.0)
MINUTES = DAY // 60
CARRIES, FULL, BUSY_PODS = 20.0, 0.8, 8
"""Requests/s of a pod, how full pods are meant to be, and how many of them the busiest hour needs."""
SCALES = (1.0, 0.5, 2.0, 4.0)
"""Sizes of pod that the last contender chooses from: multiples of `CARRIES` that such a pod carries. Of equally cheap
sizes it takes the first."""
LEAST_PODS, HOLD_MINUTES = 2, 5
NOISE = 0.1
"""Standard deviation of the logarithm of a pod's share of the load."""
CPU_LIMIT, MEMORY_LIMIT = 2.0, 1.25
"""Limits over requests."""
DOLLARS_PER_CORE_HOUR, DOLLARS_PER_GIB_HOUR = 0.033, 0.0045
MIB, GIB = 2.0**20, 2.0**30
STEP = (0.05, 64 * MIB)

Size = tuple[float, float]
"""Cores and bytes that a container asks for."""


@dataclass(frozen=True)
class Service:
    """What a pod needs: of CPU and memory at rest, for each request/s, and for each hour that it has been up."""

    cores: float
    cores_per_rps: float
    bytes: float
    bytes_per_rps: float
    bytes_per_hour: float


SERVICES = {
    "CPU-bound": Service(0.05, 0.04, 400 * MIB, 0.0, 0.0),
    "memory-growing": Service(0.05, 0.01, 300 * MIB, 40 * MIB, 20 * MIB),
    "mixed": Service(0.05, 0.03, 300 * MIB, 20 * MIB, 10 * MIB),
}


@dataclass
class Figures:
    """What two days came to."""

    dollars: float = 0.0
    requests: float = 0.0
    late: float = 0.0
    killed: int = 0
    changes: int = 0


class Pods:
    """The pods of a service under a load, minute by minute: their number, what they use, and who is killed."""

    def __init__(self, service: Service, rate: Float, seed: int, scale: float) -> None:
        self.service, self.rate = service, rate
        needed = np.ceil(rate / (FULL * CARRIES * scale)).astype(int)
        held = np.lib.stride_tricks.sliding_window_view(
            np.pad(needed, (HOLD_MINUTES - 1, 0), mode="edge"), HOLD_MINUTES
        )
        self.replicas = np.maximum(held.max(axis=1), LEAST_PODS)
        self._rng = np.random.default_rng(seed)
        self.since = np.zeros(0)
        self.sessions = np.zeros(0)

    def use(self, minute: int) -> tuple[Float, Float, Float]:
        """Give the requests/s, cores and bytes of each pod in this minute."""
        n = int(self.replicas[minute])
        fresh = max(n - len(self.since), 0)
        self.since = np.append(self.since, np.full(fresh, minute))[:n]
        self.sessions = np.append(self.sessions, np.zeros(fresh))[:n]
        share = np.exp(self._rng.normal(0.0, NOISE, n))
        load = self.rate[minute] * share / share.sum()
        self.sessions += (load - self.sessions) / 30
        up = np.minimum((minute - self.since) / 60, 24)
        one = self.service
        memory = one.bytes + one.bytes_per_rps * self.sessions + one.bytes_per_hour * up
        return load, one.cores + one.cores_per_rps * load, memory

    def kill(self, which: Any, minute: int) -> None:
        """Begin again with what is in memory."""
        self.since[which], self.sessions[which] = minute, 0.0


Look = Callable[[float, Float, Float, Float], Size]
"""Takes the time in seconds, cores and bytes that the pods use, and the bytes of those that were killed; gives the size
that pods have from now on."""


def played(service: Service, rate: Float, size: Size, look: Look, scale: float = 1.0) -> Figures:
    """Play a load, a minute in each place, with pods that carry `CARRIES` * `scale`; the first day has no figures."""
    pods, found = Pods(service, rate, 0, scale), Figures()
    for minute in range(len(rate)):
        load, cores, memory = pods.use(minute)
        killed = memory > MEMORY_LIMIT * size[1]
        late = np.where(killed, load, load * np.maximum(1 - CPU_LIMIT * size[0] / cores, 0.0))
        if minute >= MINUTES:
            price = size[0] * DOLLARS_PER_CORE_HOUR + size[1] / GIB * DOLLARS_PER_GIB_HOUR
            found.dollars += len(load) * price / 60
            found.requests += 60 * float(load.sum())
            found.late += 60 * float(late.sum())
            found.killed += int(killed.sum())
        pods.kill(killed, minute)
        before, size = size, look(60.0 * minute, cores, memory, memory[killed])
        found.changes += size != before and minute >= MINUTES
    return found


def template(service: Service, rate: Float, guess: float, scale: float = 1.0) -> Size:
    """Give what somebody asks for who measured a day, as a multiple of what was used most, with the usual margin."""
    pods = Pods(service, rate, 1, scale)
    used = [pods.use(minute)[1:] for minute in range(len(rate))]
    return guess * max(float(one.max()) for one, _ in used), guess * max(float(one.max()) for _, one in used)


def fixed(size: Size) -> Look:
    """Leave pods as the template has them."""
    return lambda time, cores, memory, killed: size


def recommended(size: Size) -> Look:
    """Follow what rlscaler recommends."""
    ranges = Ranges(*(np.array([one]) for one in (np.multiply(size, 0.1), np.multiply(size, 2.0), STEP)))
    known = nothing_known(1)

    def look(time: float, cores: Float, memory: Float, killed: Float) -> Size:
        nonlocal known
        most = max([float(memory.max()), *(MEMORY_LIMIT * killed)])
        known = recommend(ranges, known, Usage(np.array([time]), np.array([[cores.max(), most]])))
        wanted = np.where(np.isnan(known.size[0]), size, known.size[0])
        return float(wanted[0]), float(wanted[1])

    return look


def vpa(size: Size) -> Look:
    """Follow the VPA's recommender and updater."""
    one = Vpa(size)

    def look(time: float, cores: Float, memory: Float, killed: Float) -> Size:
        one.observe(time, cores, memory)
        for at in killed:
            one.killed(time, float(at))
        return one.update(time, (0.1 * size[0], 0.1 * size[1]), (2 * size[0], 2 * size[1]))

    return look


CONTENDERS: dict[str, Callable[[Size], Look]] = {"replicas alone": fixed, "VPA": vpa, "rlscaler": recommended}
TOGETHER = "sizes with replicas, speed known"


def cheapest(service: Service, day: Float) -> float:
    """Give the scale of the pods that cost least on a day of which the sizes are known already."""

    def dollars(scale: float) -> float:
        size = template(service, day, 1.0, scale)
        return played(service, np.tile(day, 2), size, recommended(size), scale).dollars

    return min(SCALES, key=dollars)


def plays(
    service: Service, loads: dict[str, Float], guess: float, scales: dict[str, float]
) -> dict[str, list[Figures]]:
    """Give what each contender came to on each load; `scales` are those of the last one."""
    sizes = {load: template(service, rate[:MINUTES], guess) for load, rate in loads.items()}
    found = {
        name: [played(service, rate, sizes[load], make(sizes[load])) for load, rate in loads.items()]
        for name, make in CONTENDERS.items()
    }
    larger = {load: template(service, rate[:MINUTES], guess, scales[load]) for load, rate in loads.items()}
    found[TOGETHER] = [
        played(service, rate, larger[load], recommended(larger[load]), scales[load]) for load, rate in loads.items()
    ]
    return found


def minutes(load: str) -> Float:
    """Give the requests/s of the last three days of a load, as a service of `BUSY_PODS` pods has them in busy hours."""
    _, end = span_s(day_load(load), own_service(day_load(load))[Part.TEST])
    seconds = seconds_of_day_load(load).rate(end - 3 * DAY, end)
    rate = seconds.reshape(-1, 60).mean(axis=1)
    return np.asarray(rate * FULL * CARRIES * BUSY_PODS / np.percentile(rate[:MINUTES], 99))


@click.command()
@out_option
def main(out: Path | None) -> None:
    """Print a Markdown table: each service and template, with what each contender costs and who pays for it."""
    rows: list[dict[str, Any]] = []
    click.echo("| service | template | contender | $ a day | against replicas alone | late (%) | killed | changes |")
    click.echo("|---|---|---|---|---|---|---|---|")
    loads = {name: minutes(name) for name in LOADS}
    for name, service in SERVICES.items():
        scales = {load: cheapest(service, rate[:MINUTES]) for load, rate in loads.items()}
        for guess in GUESSES:
            found = plays(service, loads, guess, scales)
            alone = sum(one.dollars for one in found["replicas alone"])
            for contender, each in found.items():
                total = replace(each[0], **{f: sum(getattr(one, f) for one in each) for f in vars(each[0])})
                change, late = 100 * (total.dollars / alone - 1), 100 * total.late / total.requests
                click.echo(
                    f"| {name} | {guess:g}x | {contender} | {total.dollars / 2 / len(LOADS):.2f} | {change:+.0f} % "
                    f"| {late:.3f} | {total.killed} | {total.changes} |"
                )
                rows.append({"service": name, "template": guess, "contender": contender, **vars(total)})
        click.echo(f"{name}: pods of known speed carry {scales}", err=True)
    write(out, rows, indent=1)


if __name__ == "__main__":
    main()
