"""Play courses on a broker: the emulated service's consumers, which are real members, and its producer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path

from benchmarks.stream_calibration.course import (
    BATCHES,
    CHANGES,
    MESSAGE_SECONDS,
    PARTITIONS,
    SECONDS,
    Course,
)
from prometheus_client import CollectorRegistry

from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.demo.contenders import RLSCALER
from rlscaler_dev.demo.kafka.play import make_topic
from rlscaler_dev.demo.records import read_columns
from rlscaler_loadgen.service.replica import CPU, Flavour
from rlscaler_loadgen.service.router import Pod
from rlscaler_loadgen.streams.group import Members
from rlscaler_loadgen.streams.journal import ASSIGNMENTS, PROCESSED, PRODUCED, ConsumerJournal
from rlscaler_loadgen.streams.member import Job, Member
from rlscaler_loadgen.traces import Trace, write_trace

FORM_SECONDS = 60.0
DRAIN_SECONDS = 60.0
"""How long after the load the consumers may take for what still waits."""


def play(courses: list[Course], servers: str, out: Path, at_once: int) -> None:
    """Play the courses in processes of their own, `at_once` beside one another; each has a folder of records in `out`.

    Raises what a course raised: StartError where a group does not form or does not come to its end.
    """
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        list(pool.map(partial(play_one, servers, out), courses))


def play_one(servers: str, out: Path, course: Course) -> None:
    """Play one course from an empty topic to its last message."""
    folder = out / course.name
    folder.mkdir(parents=True, exist_ok=True)
    make_topic(servers, course.name, PARTITIONS)
    batch = BATCHES[course.batch]
    job = Job(servers, course.name, course.name, course.protocol, MESSAGE_SECONDS, batch=batch, seed=course.seed)
    flavour = Flavour(CPU.name, MESSAGE_SECONDS, queue=batch)
    journal = ConsumerJournal(CollectorRegistry(), "calibration", job.group, folder)
    failures: list[Exception] = []
    members = Members(lambda pod: Member(pod, job, flavour, journal, failures.append))
    with closing(journal), closing(members):
        names = (f"consumer-{number:02d}" for number in count())
        for name in islice(names, course.first):
            members.apply(Pod(name, CPU.name))
        wait_until(lambda: _shared(journal, folder, course.first), f"{course.name}: the group", FORM_SECONDS)
        _drive(course, members, names, journal, folder, servers)
    if failures:
        raise failures[0]


def _drive(
    course: Course, members: Members, names: Iterator[str], journal: ConsumerJournal, folder: Path, servers: str
) -> None:
    started = folder / "started.json"
    write_trace(folder / "load.csv", Trace(course.rate(), 1.0))
    command = [
        *(*RLSCALER, "load", "produce", "--bootstrap-servers", servers, "--topic", course.name),
        *("--pattern", "trace", "--trace", str(folder / "load.csv"), "--duration", str(SECONDS)),
        *("--peak", f"{course.rate().max():g}", "--seed", str(course.seed)),
        *("--out", str(folder), "--started", str(started)),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr) as producer:
        wait_until(started.exists, f"{course.name}: the load", FORM_SECONDS)
        begun = float(json.loads(started.read_text())["started_at"])
        changes = []
        for second, consumers in zip(CHANGES, (course.second, course.first), strict=True):
            time.sleep(max(0.0, begun + second - time.time()))
            changes.append(_change(members, names, consumers))
        producer.wait(SECONDS + DRAIN_SECONDS)
    (folder / "run.json").write_text(json.dumps({"begun": begun, "changes": changes}))
    wait_until(lambda: _processed(journal, folder), f"{course.name}: the last message", DRAIN_SECONDS, 1.0)


def _change(members: Members, names: Iterator[str], consumers: int) -> dict[str, object]:
    """Start or end consumers, the newest first; tells when, and which came and went."""
    at, there = time.time(), list(members.replicas)
    came = list(islice(names, max(consumers - len(there), 0)))
    went = there[consumers:]
    for name in came:
        members.apply(Pod(name, CPU.name))
    for name in went:
        members.remove(name)
    return {"at": at, "came": came, "went": went, "stayed": [name for name in there if name not in went]}


def _shared(journal: ConsumerJournal, folder: Path, consumers: int) -> bool:
    """Whether each consumer has partitions, as many as are to be had."""
    journal.flush()
    has: dict[str, int] = {}
    rows = read_columns(folder / "assignments.csv", ASSIGNMENTS)
    for pod, change, partitions in zip(rows["pod"], rows["change"], rows["partitions"], strict=True):
        has[pod] = has.get(pod, 0) + int(partitions) * (1 if change == "assigned" else -1)
    return sum(has.values()) == PARTITIONS and len([pod for pod, number in has.items() if number]) == consumers


def _processed(journal: ConsumerJournal, folder: Path) -> bool:
    journal.flush()
    written = read_columns(folder / "produced.csv", PRODUCED)
    done = read_columns(folder / "processed.csv", PROCESSED)
    places = (set(zip(rows["partition"], rows["offset"], strict=True)) for rows in (written, done))
    return next(places) <= next(places)
