"""PID 1 of the namespace: gives it its own /run, /var, kernel settings and network, then reaps orphans until killed.

unshare --mount --net --pid --fork ... python -m rlscaler_dev.cluster.realnode.init CLUSTER_DIRECTORY
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rlscaler_dev.cluster.network import NODE_IP, NODE_PREFIX
from rlscaler_dev.cluster.realnode.files import READY, node_folder

GLOBAL_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""The kubelet sets these for the whole machine. It is shown files that hold its values already."""

ONLINE_CPUS = Path("/sys/devices/system/cpu/online")
"""Where the kubelet reads how many CPUs the node has."""

FORWARDING = (
    ("net/ipv4/ip_forward", "pods reach Services only where the kernel forwards IPv4"),
    (
        "net/bridge/bridge-nf-call-iptables",
        "Services reach pods of the same node only through br_netfilter: `modprobe br_netfilter` on the host",
    ),
)
"""Settings of the namespace alone, and the failure where one is missing."""


def run(*command: str) -> None:
    """Raises CalledProcessError; the command's own complaint is in the log."""
    subprocess.run(command, check=True)


def filesystems(node: Path) -> None:
    """A fresh /run; a /var whose changes stay in the cluster's directory."""
    run("mount", "--make-rprivate", "/")
    run("mount", "--make-rshared", "/")  # as the kubelet expects of its root
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    Path("/run/lock").mkdir()
    upper, work = node / "var", node / "var.work"
    for directory in (upper, work):
        directory.mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir=/var,upperdir={upper},workdir={work}"
    run("mount", "-t", "overlay", "-o", layers, "overlay", "/var")


def show(path: Path, content: str) -> None:
    """Let the namespace read `content` from a file of the kernel's, and write to nothing."""
    shown = Path("/run/shown", *path.parts[1:])
    shown.parent.mkdir(parents=True, exist_ok=True)
    shown.write_text(content + "\n")
    run("mount", "--bind", str(shown), str(path))


def kernel() -> None:
    """Hide the global settings that the kubelet would write, and set those of the namespace.

    The node has the CPUs that this process may use (`taskset`): cgroups.py keeps its pods to them.
    """
    show(ONLINE_CPUS, ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))))
    for name, value in GLOBAL_SYSCTLS.items():
        show(Path("/proc/sys", name), value)
    for name, remedy in FORWARDING:
        try:
            Path("/proc/sys", name).write_text("1")
        except OSError as error:
            raise SystemExit(f"cannot set {name}: {error.strerror}; {remedy}") from error


def network() -> None:
    """Loopback and one address for the node, on a pair of virtual interfaces that lead nowhere."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node0p")
    run("ip", "address", "add", f"{NODE_IP}/{NODE_PREFIX}", "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    run("ip", "link", "set", "node0p", "up")
    # Packets to a Service's address need a route before kube-proxy's rules turn them to a pod.
    run("ip", "route", "add", "default", "dev", "node0")


def reap() -> None:
    """Orphans of the whole namespace become children of its PID 1."""
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


def main() -> None:
    """Prepare everything, say so, reap."""
    node = node_folder(Path(sys.argv[1]))
    filesystems(node)
    kernel()
    network()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    (node / READY).touch()
    reap()


if __name__ == "__main__":
    main()
