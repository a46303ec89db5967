"""The operator's dashboards on the data of the run: which panels are empty, and each as a picture."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from rlscaler_dev.demo.exceptions import DemoError
from rlscaler_dev.e2e.commands import Commands
from rlscaler_dev.e2e.settings import DEMO_NAMESPACE, DEMO_RELEASE, SCRAPE_SECONDS, Settings

LAST_MINUTES = 5


def look(settings: Settings, commands: Commands) -> dict[str, list[str]]:
    """Dashboard -> titles of its empty panels; OUT/dashboard-NAME.png of each. Raises DemoError."""
    empty = {}
    with _forwarded(commands) as url:
        source = (
            *("--prometheus-url", url, "--last", str(LAST_MINUTES)),
            *("--scrape-interval", str(SCRAPE_SECONDS)),
        )
        for path in sorted((settings.charts / "rlscaler" / "dashboards").glob("*.json")):
            said = commands.run("rlscaler", "dashboard", "check", str(path), *source, check=False)
            empty[path.stem] = [line.rpartition("EMPTY")[0].strip() for line in said.splitlines() if "EMPTY" in line]
            picture = settings.out / f"dashboard-{path.stem}.png"
            commands.run("rlscaler", "dashboard", "draw", str(path), "--out", str(picture), *source)
    return empty


@contextmanager
def _forwarded(commands: Commands) -> Iterator[str]:
    """A URL of the Prometheus in the cluster, as long as the context lasts."""
    service = f"svc/{DEMO_RELEASE}-prometheus"
    command = commands.command("kubectl", "port-forward", "-n", DEMO_NAMESPACE, service, ":9090")
    with subprocess.Popen(
        command, env=commands.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            if "127.0.0.1:" not in line:
                raise DemoError(f"kubectl port-forward {service} did not begin: {line.strip() or 'no output'}")
            yield f"http://127.0.0.1:{line.partition('127.0.0.1:')[2].split()[0]}"
        finally:
            process.terminate()
