"""Packages of the distribution that the real node and the building of images need: the one list of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster.processes import supported
from rlscaler_dev.exceptions import DevClusterError

NODE, IMAGES = "node", "images"
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""Debian's, and upstream's default."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Package:
    """A Debian package and the program that needs it."""

    name: str
    commands: tuple[str, ...]
    """Each must be on PATH or in a directory of CNI plugins, however it was installed."""
    purpose: str = NODE

    def missing(self) -> list[str]:
        """Return the commands of the package that are missing."""
        return [command for command in self.commands if locate(command) is None]


PACKAGES = (
    Package("containerd", ("containerd", "containerd-shim-runc-v2", "ctr")),
    Package("runc", ("runc",)),
    Package("containernetworking-plugins", ("bridge", "host-local", "loopback")),
    Package("catatonit", ("catatonit",)),
    Package("nftables", ("nft",)),
    Package("iproute2", ("ip",)),
    Package("mount", ("mount",)),
    Package("util-linux", ("unshare", "nsenter")),
    Package("debootstrap", ("debootstrap",), IMAGES),
    Package("buildah", ("buildah",), IMAGES),
)
"""Ubuntu has them under the same names."""


def locate(command: str) -> str | None:
    """Return the path of a command, also where root's PATH lacks the system directories."""
    plugins = next((str(each / command) for each in CNI_DIRECTORIES if os.access(each / command, os.X_OK)), None)
    if command in ("bridge", "host-local", "loopback"):  # iproute2 has a `bridge` too
        return plugins
    return shutil.which(command, path=search_path())


def search_path() -> str:
    """PATH with the system directories, in which containerd looks for runc and kube-proxy for nft."""
    return f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}"


def needed(command: str) -> str:
    """Return the path of a command. Raises DevClusterError that names its package."""
    path = locate(command)
    if path is None:
        package = next((each.name for each in PACKAGES if command in each.commands), command)
        raise DevClusterError(f"{command} is missing: `make e2e-packages` installs {package}, as root")
    return path


def plugin_directory() -> Path:
    """The directory of CNI plugins."""
    return Path(needed("bridge")).parent


def missing(purpose: str | None = None) -> list[Package]:
    """Packages of which a command is missing; of one purpose, or of all."""
    return [package for package in PACKAGES if purpose in (None, package.purpose) and package.missing()]


def reasons_against(purpose: str, root_for: str) -> str:
    """Return all reasons why nothing of a purpose can be done here, `root_for` among them; empty where it can."""
    if not supported():
        return "it needs Linux"
    reasons = [] if os.geteuid() == 0 else [f"it needs root ({root_for}): run it with sudo -E"]
    if absent := missing(purpose):
        commands = ", ".join(command for package in absent for command in package.missing())
        reasons.append(f"{commands} missing: `make e2e-packages` installs {names(absent)}")
    return "; ".join(reasons)


def require_node() -> None:
    """Raises DevClusterError where the real node cannot run, with all reasons and a remedy."""
    if reasons := reasons_against(NODE, "namespaces, mounts and cgroups"):
        raise DevClusterError(
            f"the real node cannot run here: {reasons}. Without `--node real` kwok plays all nodes, "
            "which needs none of this"
        )


def names(packages: Iterable[Package]) -> str:
    """Their names in one line."""
    return " ".join(package.name for package in packages)


def install(packages: Sequence[Package]) -> None:
    """Install with apt-get; raises DevClusterError where there is none, without root, and when it fails."""
    apt = locate("apt-get")
    if apt is None:
        raise DevClusterError(f"no apt-get here: install this system's packages for {names(packages)}")
    if os.geteuid() != 0:
        raise DevClusterError(f"installing needs root: sudo apt-get install --no-install-recommends {names(packages)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    chosen = [package.name for package in packages]
    for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *chosen]):
        if subprocess.run([apt, *arguments], env=environment, check=False).returncode:
            raise DevClusterError(f"apt-get {arguments[0]} failed; its last lines say why")
