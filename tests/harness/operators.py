"""Operators as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlscaler_dev.placement.testbed import Process


class Operator(Process):
    """One `rlscaler operator run` process; `program` is what Python runs as `rlscaler`."""

    def __init__(
        self,
        kubeconfig: Path,
        prometheus_url: str,
        folder: Path,
        *options: str,
        program: tuple[str, ...] = ("-m", "rlscaler_live.cli"),
    ) -> None:
        self.kubeconfig, self.audit = kubeconfig, folder / "audit.jsonl"
        command = [sys.executable, *program, "operator", "run", "--kubeconfig", str(kubeconfig)]
        command += ["--prometheus-url", prometheus_url, "--scrape-interval", "2", "--lease-seconds", "5"]
        command += ["--audit-log", str(self.audit), *options]
        super().__init__(command, folder / "operator.log")

    def kill(self) -> None:
        """kill -9."""
        self.send(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; raises TimeoutExpired where that does not end it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def replayed(self) -> dict[str, Any]:
        """The tally of a replay of the decision log, which has to be as it was."""
        command = [sys.executable, "-m", "rlscaler_live.cli", "replay", str(self.audit), "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        tally: dict[str, Any] = json.loads(done.stdout)
        return tally

    def decisions(self, name: str) -> list[dict[str, Any]]:
        if not self.audit.exists():
            return []
        lines = [line for line in self.audit.read_text().splitlines() if line.endswith("}")]
        return [record for record in map(json.loads, lines) if record.get("name") == name]
