"""Skeleton of the demos: contenders are played on a control plane of their own, and compared."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import click

from rlscaler_dev.cluster import keda, state
from rlscaler_dev.cluster.kube import Json, has_condition, path_of
from rlscaler_dev.demo.interrupts import ended_by_signal, interruptible
from rlscaler_dev.demo.operator import Operator
from rlscaler_dev.demo.processes import REFRESH_SECONDS, Child, Supervisor
from rlscaler_dev.demo.records import versions
from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.testbed import Cluster, Service, session
from rlscaler_dev.exceptions import RecordError

LINE_SECONDS = 20.0
"""Time between two lines of progress."""
READY_SECONDS = 180.0

Say = Callable[[str], None]
Recorder = TypeVar("Recorder")


class Stage(ABC, Generic[Recorder]):
    """One contender on a cluster of its own. A demo derives from it: its service, its load and its records."""

    condition = "Ready"
    """Condition of the scaling objects that the load waits for."""

    def __init__(self, cluster: Cluster, supervisor: Supervisor, results: ResultFolder, say: Say) -> None:
        self.cluster, self.info, self.kube = cluster, cluster.info, cluster.kube
        self.supervisor, self.results, self.say = supervisor, results, say
        self.services: dict[str, Service] = {}
        """Processes that answer for the pods, by name."""

    @classmethod
    def play(cls, settings: Settings, say: Say, *arguments: Any) -> ResultFolder:
        """Play a contender from an empty machine to its raw records, which are returned.

        `arguments` are those of the demo's own class after the four of this one. Raises DemoError, or Interrupted when
        a signal ended it.
        """
        results = ResultFolder(settings.out)
        with (
            interruptible(lambda: say("still stopping; one moment")),
            session(settings, results.logs, results.prepare, say) as (cluster, supervisor),
        ):
            say(f"cluster {cluster.info.name}: Kubernetes {cluster.info.server_version} at {cluster.info.server}")
            cls(cluster, supervisor, results, say, *arguments).run()
        return results

    @staticmethod
    def settings(this: Any, contender: Any) -> Settings:
        """Return the settings of the cluster for a contender of a demo."""
        return Settings(out=this.out / contender.name, cluster_name=this.cluster_name)

    def run(self) -> None:
        """Start the service and its scalers in the order in which they need each other, and send the load."""
        operator = self.operator()
        self.start_service()
        # The processes of the service start while the operator's definitions and rights are created.
        if operator is not None:
            operator.install()
        self.wait_for_service()
        self.say(self.introduction())
        with self.recorder() as recorder:
            self.supervisor.wait_while(lambda: self.replicas_missing(recorder), READY_SECONDS)
            # The recorder runs before anything scales, so that no change of replicas is missed.
            self.kube.apply_all(self.scalers())
            self.start_scaling(operator, recorder)
            self.drive(recorder)
            if operator is not None:
                operator.stop()
        for service in self.services.values():
            service.stop()

    def start_scaling(self, operator: Operator | None, recorder: Recorder) -> None:
        """Start the operator, and wait for the scalers."""
        if operator is not None:
            operator.start()
        self.supervisor.wait_while(lambda: self.scalers_missing(recorder), READY_SECONDS)

    def operator(self) -> Operator | None:
        """Return the operator where the contender needs one."""
        return None

    def start_service(self) -> None:
        """Create the workload and start the processes that answer for its pods."""
        self.create_workload()
        for service in self.services.values():
            service.start()

    @abstractmethod
    def create_workload(self) -> None:
        """Create the objects of the service."""

    def start_keda(self) -> None:
        """Start KEDA, which is built the first time."""
        self.say("starting KEDA")
        cluster = state.load(self.info.name)
        assert cluster is not None
        keda.start(keda.Running(cluster), tuned=False)

    def wait_for_service(self) -> None:
        """Wait until the service answers."""
        for service in self.services.values():
            service.wait()

    @abstractmethod
    def introduction(self) -> str:
        """Return one line about the contender and the service."""

    @abstractmethod
    def recorder(self) -> AbstractContextManager[Recorder]:
        """Return the recorder of replicas."""

    @abstractmethod
    def replicas_missing(self, recorder: Recorder) -> str:
        """Return the first replicas that are not ready yet; empty where all are."""

    @abstractmethod
    def scalers(self) -> Sequence[Json]:
        """Return the objects that scale the service."""

    @abstractmethod
    def drive(self, recorder: Recorder) -> None:
        """Send the load, and return when it is over."""

    def scalers_missing(self, recorder: Recorder) -> str:
        """Return the first scaling object that does not scale yet; empty where all do."""
        for scaler in self.scalers():
            if not has_condition(self.kube.get(path_of(scaler)), self.condition):
                return f"{scaler['kind']} {scaler['metadata']['name']} to be {self.condition}"
        return ""

    def over(self, running: dict[str, Child], apart_from: Sequence[Child] = ()) -> bool:
        """Take the loads that have ended out of `running`, and return whether none is left.

        Raises ChildError where one ended too early, or any other child of which `apart_from` is none.
        """
        for name, child in list(running.items()):
            if not child.running:
                if child.process.returncode:
                    raise child.failure("ended before the load was over")
                self.supervisor.finish(running.pop(name).name)
        self.supervisor.check(apart_from=[*running.values(), *apart_from])
        return not running

    def progress(self, begun: float) -> Iterator[tuple[float, bool]]:
        """Yield the seconds since `begun` (Unix) twice a second, and whether a line of progress is due."""
        line = 0.0
        while True:
            seconds = time.time() - begun
            due = seconds >= line
            if due:
                line = (seconds // LINE_SECONDS + 1) * LINE_SECONDS
            yield seconds, due
            time.sleep(REFRESH_SECONDS)

    def write_run(self, contender: Any, play: Any, begun: Any) -> None:
        """Write `run.json`: contender and settings (dataclasses), the load's begin, and the versions of everything."""
        run = {
            **asdict(play),
            "contender": contender.name,
            "title": contender.title,
            "begun": begun,
            "server_version": self.info.server_version,
            "versions": versions(),
        }
        (self.results.data / "run.json").write_text(json.dumps(run, indent=1, default=str) + "\n")


@dataclass(frozen=True)
class Comparison:
    """The results of all contenders that have records in one folder: `summary.json`, `table.md` and a picture."""

    title: str
    """Subject of the demo, for messages."""
    contenders: Mapping[str, Any]
    """Contenders by the names of their folders, in the order of the table."""
    stage: type[Stage[Any]]
    results: ModuleType
    """Has `read` of the records in a folder, `figures` of these, and `table` of the figures of all contenders."""
    draw: Callable[[list[Any], list[Any], Path], None]

    def play(self, this: Any, names: Iterable[str]) -> None:
        """Play contenders one after the other as `this` says, and report on all that have records."""
        with ended_by_signal(partial(click.echo, err=True)):
            for contender in (self.contenders[name] for name in dict.fromkeys(names)):
                settings = self.stage.settings(this, contender)
                self.stage.play(settings, lambda text: click.echo(f"• {text}"), this, contender)
        self._report(this.out)

    def _report(self, out: Path) -> None:
        """Write the results, and print the table. Raises ClickException where no contender has records."""
        records = [self._read(out / name) for name in self.contenders if (out / name / "data" / "run.json").exists()]
        if not records:
            raise click.ClickException(f"{out} has no records of a demo of {self.title}: leave --report out")
        figures = [self.results.figures(record) for record in records]
        table, picture = self.results.table(figures), out / f"{self.title.lower()}.png"
        (out / "summary.json").write_text(json.dumps([asdict(row) for row in figures], indent=1) + "\n")
        (out / "table.md").write_text(table + "\n")
        click.echo(table)
        self.draw(records, figures, picture)
        click.echo(f"  {picture}")

    def _read(self, folder: Path) -> Any:
        try:
            return self.results.read(folder / "data")
        except (OSError, KeyError, ValueError, IndexError) as error:
            raise RecordError(f"{folder}: not the records of a demo of {self.title}: {error}") from error
