"""buildah with a storage of its own below our cache, so that nothing is left on the machine when that is removed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.realnode import packages
from rlscaler_dev.exceptions import BuildError

ELSEWHERE = "with Docker: `docker build -f image/Dockerfile --target operator -t localhost/rlscaler:dev .`"


def check() -> None:
    """Raises BuildError that lists every missing program, before anything is begun."""
    if reasons := packages.reasons_against(packages.IMAGES, "debootstrap changes root"):
        raise BuildError(f"images cannot be built here: {reasons}. {ELSEWHERE}")


class Buildah:
    """Commands of buildah and its companions; one log has all their output.

    Raises BuildError with the end of the log when one fails.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("", encoding="utf-8")
        storage = paths.images_dir() / "storage"
        self._command = [
            packages.needed("buildah"),
            "--root",
            str(storage / "graph"),
            "--runroot",
            str(storage / "run"),
        ]
        self._command += ["--storage-driver", "overlay"]

    def __call__(self, *arguments: str) -> str:
        """Standard output."""
        return self.run(*self._command, *arguments)

    def run(self, *command: str) -> str:
        """Run any program, its mounts in a namespace that ends with it; its standard output."""
        command = (packages.needed("unshare"), "--mount", "--propagation", "private", *command)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(command)}\n")
            file.flush()
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=file, text=True, check=False)
            file.write(done.stdout)
        if done.returncode:
            tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise BuildError(
                f"`{Path(command[4]).name}` failed with code {done.returncode}; {self.log} ends with\n{tail}"
            )
        return done.stdout.strip()

    def exists(self, image: str) -> bool:
        """Return whether an image of this name exists."""
        return bool(self("images", "--quiet", "--filter", f"reference={image}"))
