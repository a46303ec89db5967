"""Ray Serve with one application, and Ray's metrics, until its input ends. Run by a Python that has `ray[serve]`.

Arguments: the port of the application, that of the metrics, a folder for Ray's files, and how many milliseconds lie
between two exports of its metrics (10,000, as Ray has it).
"""

import asyncio
import os
import sys

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_REPLICA_UTILIZATION_WINDOW_S": "20"}

import ray
from ray import serve


@serve.deployment(num_replicas=1, max_ongoing_requests=4, ray_actor_options={"num_cpus": 0.1})
class Echo:
    async def __call__(self, request):
        await asyncio.sleep(0.2)
        return "ok"


port, metrics, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ray.init(
    num_cpus=1,
    include_dashboard=False,
    _metrics_export_port=metrics,
    object_store_memory=100 * 2**20,
    log_to_driver=False,
    _temp_dir=folder,
    _system_config={"metrics_report_interval_ms": int((*sys.argv, 10_000)[4])},
)
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(Echo.bind(), name="default")
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
