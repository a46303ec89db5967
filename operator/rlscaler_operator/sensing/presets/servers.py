"""Presets of model servers, and the row of the series that services of this project export."""

from __future__ import annotations

from rlscaler_operator.sensing.presets.table import ByLabels, ByPods, Histogram, Preset, Tokens, Utilization

DERIVED = (
    "Derived: requests that are over, and the growth of those that run and wait in the same window; the server counts "
    "none as they arrive."
)

FRONT_DOOR = "set `frontDoor`, or `queries.arrivalRate`"

OWN_SERIES = Preset(
    title="Services with the series of docs/metrics.md",
    source="docs/metrics.md",
    releases="all",
    identified_by=ByLabels(pool="pool"),
    arrivals="Counted as they arrive.",
    arrived=("inference_requests_received_total",),
    answered=("inference_request_duration_seconds_count",),
    in_flight=("inference_requests_in_flight",),
    latency=Histogram("inference_request_duration_seconds"),
)


def _vllm(*names: str) -> str:
    """Return metrics of vLLM and, as Ray Serve exports them, of vLLM inside Ray."""
    return " or ".join([*(f"vllm:{name}" for name in names), *(f"ray_vllm_{name}" for name in names)])


SERVERS: dict[str, Preset] = {
    "vllm": Preset(
        title="vLLM",
        source="vLLM 0.32, run",
        releases="0.6 to 0.32, also inside Ray Serve LLM",
        identified_by=ByPods(),
        arrivals=DERIVED,
        answered=(_vllm("request_success_total"),),
        refused=(_vllm("admission_rejections_total"),),
        in_flight=(_vllm("num_requests_running"),),
        waiting=(_vllm("num_requests_waiting"),),
        latency=Histogram(_vllm("e2e_request_latency_seconds")),
        ttft=Histogram(_vllm("time_to_first_token_seconds")),
        # Up to 0.10 each token was observed, by two names in turn.
        tpot=Histogram(
            _vllm(
                "request_time_per_output_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds"
            )
        ),
        tokens=Tokens((_vllm("prompt_tokens_total"), _vllm("generation_tokens_total"))),
        utilization=Utilization(
            _vllm("kv_cache_usage_perc", "gpu_cache_usage_perc"), 100.0, ("gpu", "cpu"), full_when_waiting=True
        ),
        notes=(
            "Requests that were aborted count as over. Those that are refused (`max_num_queued_reqs`) have arrived "
            "too; versions that do not count them know less than a front door.",
        ),
    ),
    "sglang": Preset(
        title="SGLang",
        source="source of SGLang 0.5 (`--enable-metrics`)",
        releases="0.5",
        identified_by=ByPods(),
        arrivals=DERIVED,
        answered=("sglang:num_requests_total",),
        in_flight=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        latency=Histogram("sglang:e2e_request_latency_seconds"),
        ttft=Histogram("sglang:time_to_first_token_seconds"),
        tpot=Histogram("sglang:inter_token_latency_seconds", of_tokens=True),
        tokens=Tokens(("sglang:prompt_tokens_total", "sglang:generation_tokens_total"), when_over=True),
        utilization=Utilization("sglang:token_usage", 100.0, ("gpu", "cpu"), full_when_waiting=True),
        ranks=("tp_rank", "pp_rank", "moe_ep_rank"),
        notes=(
            "`sglang:num_requests_total` is counted when a request is over. It appears with the first one: until then "
            "the arrivals are unknown.",
        ),
    ),
    "rayserve": Preset(
        title="Ray Serve",
        source="Ray 2.60, run",
        releases="2.10 to 2.60",
        identified_by=ByLabels(service="application"),
        arrivals=DERIVED,
        answered=(" or ".join(f'ray_serve_num_http_requests{end}{{route!~"/-/.*"}}' for end in ("_total", "")),),
        in_flight=("ray_serve_replica_processing_queries",),
        waiting=("ray_serve_deployment_queued_queries",),
        latency=Histogram("ray_serve_http_request_latency_ms", per_second=1000.0),
        utilization=Utilization("ray_serve_replica_utilization_percent", 1.0, ("gpu", "cpu")),
        exported_every_seconds=10.0,
        notes=(
            "`metrics.service` is the name of the Serve application. Its requests are counted wherever its proxies "
            "run; the utilization is that of the replicas in the target's pods.",
            "The utilization is over ten minutes unless `RAY_SERVE_REPLICA_UTILIZATION_WINDOW_S` is set: 60 is better.",
            "Ray exports its metrics every ten seconds: a scrape interval below that makes rates jump, so set "
            "`prometheus.scrapeIntervalSeconds` to 10 or more.",
            "An application of several deployments counts what is in flight once in each of them.",
        ),
    ),
    "llamacpp": Preset(
        title="llama.cpp",
        source="llama.cpp's server (`--metrics`) in xllamacpp, run",
        releases="since the option `--metrics`",
        identified_by=ByPods(),
        arrivals=f"Not exported: {FRONT_DOOR}.",
        in_flight=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        notes=("Neither requests nor latencies are counted, only tokens: a front door has to.",),
    ),
    "tgi": Preset(
        title="Text Generation Inference",
        source="TGI's page of metrics",
        releases="2.0 to 3.3",
        identified_by=ByPods(),
        arrivals="Counted as they arrive.",
        arrived=("tgi_request_count",),
        answered=("tgi_request_duration_count",),
        in_flight=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        latency=Histogram("tgi_request_duration"),
        tpot=Histogram("tgi_request_mean_time_per_token_duration"),
        tokens=Tokens(("tgi_request_input_length_sum", "tgi_request_generated_tokens_sum"), when_over=True),
        notes=("The counter appears with the first request: until then the arrivals are unknown.",),
    ),
    "triton": Preset(
        title="Triton Inference Server",
        source="Triton's page of metrics",
        releases="2.32 and later",
        identified_by=ByPods(),
        arrivals="Derived: requests that succeeded or failed, and the growth of those that are pending.",
        answered=("nv_inference_request_success", "nv_inference_request_failure"),
        waiting=("nv_inference_pending_request_count",),
        utilization=Utilization("nv_gpu_utilization", 100.0, ("gpu",)),
        notes=(
            "Triton sums latencies up and has no histogram of them: the p95 is unknown, and so is whether the model of "
            "Shadow can be trusted; a front door knows both.",
            "All models of a server count together.",
        ),
    ),
    "torchserve": Preset(
        title="TorchServe",
        source="excerpts of TorchServe's documentation; names not checked further",
        releases="0.10 and later",
        identified_by=ByPods(),
        arrivals="Counted when a worker takes them: those that wait are not seen.",
        arrived=("ts_inference_requests_total",),
        answered=("ts_inference_requests_total",),
        utilization=Utilization("GPUUtilization", 1.0, ("gpu",)),
        notes=(
            "TorchServe sums latencies up and has no histogram of them: the p95 is unknown, and so is whether the "
            "model of Shadow can be trusted; a front door knows both.",
            "Needs `metrics_mode=prometheus`. The counter appears with the first request.",
        ),
    ),
}
"""Servers whose pods are the targets, by their names in the spec."""
