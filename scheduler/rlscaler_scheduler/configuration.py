"""The KubeSchedulerConfiguration that names the server to kube-scheduler."""

from __future__ import annotations

from typing import Any

PROFILE = "rlscaler"
"""The schedulerName of pods whose nodes are suggested."""

PLUGIN = "RlscalerSuggestions"
"""Name of the score plugin in rlscaler's build of kube-scheduler."""

WEIGHT = 200
"""Weight of the ten levels: one of them is 2,000 points, and all of kube-scheduler's own scores together at most 1,200.
So the suggestion decides while there is one, and those decide as ever while there is none."""

PLUGIN_WEIGHT = 2000
"""Weight of the hundred levels of the plugin, for the same reason."""


def configuration(
    url: str,
    *,
    plugin: bool = False,
    whole_cluster: bool = False,
    timeout_ms: int = 100,
    strict: bool = False,
    events: bool = False,
    kubeconfig: str = "",
    leader_elect: bool = True,
    credentials: str = "",
    token_file: str = "",
) -> dict[str, Any]:
    """The configuration of a second kube-scheduler, or (`whole_cluster`) of a cluster's only one.

    plugin: for rlscaler's build of kube-scheduler, which has the score plugin. Otherwise any kube-scheduler calls the
    server as an extender.
    strict: of an extender, schedule nothing while the server is away, so that no hard latency is ever exceeded.
    Otherwise pods are placed as if there was no server. The plugin enforces hard latencies without the server.
    events: of the plugin, write an Event on each pod that says why its node was suggested.

    credentials: folder, as kube-scheduler sees it, with ca.crt, the authority of the server's certificate, and tls.crt
    and tls.key, which kube-scheduler shows.
    token_file: of the plugin, file with the token that it sends; an extender cannot send one.

    Raises ValueError for an option that the other mode has.
    """
    if token_file and not plugin:
        raise ValueError("an extender sends no token: set plugin as well, or show a certificate by credentials")
    if credentials and not url.startswith("https://"):
        raise ValueError("credentials are for a server that speaks HTTPS: begin the url with https://")
    if (strict and plugin) or (events and not plugin):
        raise ValueError(
            "strict is for the extender: the plugin enforces hard latencies without the server; leave it out"
            if plugin
            else "events are written by the plugin: set plugin as well, or leave events out"
        )
    profile: dict[str, Any] = {
        "schedulerName": "default-scheduler" if whole_cluster else PROFILE,
        "percentageOfNodesToScore": 100,
    }
    told: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": leader_elect,
            **({} if whole_cluster else {"resourceName": "rlscaler-kube-scheduler"}),
        },
        "clientConnection": {**({"kubeconfig": kubeconfig} if kubeconfig else {}), "qps": 5000, "burst": 10000},
        "profiles": [profile],
    }
    if plugin:
        profile["plugins"] = {"multiPoint": {"enabled": [{"name": PLUGIN, "weight": PLUGIN_WEIGHT}]}}
        arguments = {"url": url, "timeoutMilliseconds": timeout_ms, "events": events, **_files(credentials)}
        if token_file:
            arguments["tokenFile"] = token_file
        profile["pluginConfig"] = [{"name": PLUGIN, "args": arguments}]
        return told
    told["extenders"] = [
        {
            "urlPrefix": url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": WEIGHT,
            "nodeCacheCapable": True,
            "ignorable": not strict,
            "httpTimeout": f"{timeout_ms}ms",
            **({"enableHTTPS": True, "tlsConfig": _files(credentials)} if credentials else {}),
        }
    ]
    return told


def _files(credentials: str) -> dict[str, str]:
    if not credentials:
        return {}
    folder = credentials.rstrip("/")
    return {"caFile": f"{folder}/ca.crt", "certFile": f"{folder}/tls.crt", "keyFile": f"{folder}/tls.key"}
