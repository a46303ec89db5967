"""Presets of gateways and proxies in front of a service. Utilization is that of the pods: CPU usage and DCGM."""

from __future__ import annotations

from rlscaler_operator.sensing.presets.table import ByLabels, ByName, ByPods, Histogram, Preset

WHEN_ANSWERED = (
    "Counted when they are answered, refused ones included: while requests take longer and longer this lags behind "
    "what arrives."
)

FRONT_DOORS: dict[str, Preset] = {
    "knative": Preset(
        title="Knative Serving",
        source="descriptions of Knative's OpenTelemetry metrics, and of those before 1.19; names not checked further",
        releases="1.19 and later; up to 1.18 without a latency",
        identified_by=ByPods(),
        arrivals="Derived: requests that the queue proxies have passed on, and the growth of their queues.",
        answered=("kn_serving_invocation_duration_seconds_count or revision_app_request_count",),
        waiting=("kn_serving_queue_depth or revision_queue_depth",),
        latency=Histogram("kn_serving_invocation_duration_seconds"),
        notes=(
            "The queue proxies' port `http-usermetric` has to be scraped. The target is the revision's Deployment, "
            "whose own autoscaler has to be off.",
            "Up to Knative 1.18 the latency is unknown: set `queries.p95Latency`.",
        ),
    ),
    "istio": Preset(
        title="Istio",
        source="excerpts of Istio's documentation of its standard metrics; names not checked further",
        releases="1.5 and later",
        identified_by=ByLabels(
            service="destination_service_name", namespace="destination_service_namespace", apart="reporter"
        ),
        arrivals=WHEN_ANSWERED,
        arrived=("istio_requests_total",),
        answered=("istio_request_duration_milliseconds_count",),
        latency=Histogram("istio_request_duration_milliseconds", per_second=1000.0),
        notes=(
            "Sender and receiver may both report a request: of the two counts the larger one is taken.",
            "`metrics.service` is the Kubernetes Service; with `placement.httpRoute` each pool's Service is asked for.",
        ),
    ),
    "envoy": Preset(
        title="Envoy",
        source="Envoy 1.40, run; its clusters as Envoy Gateway and Contour call them",
        releases="1.20 to 1.40",
        identified_by=ByName(
            label="envoy_cluster_name",
            pattern="(?:http|grpc)route/({namespaces})/({services})/.*|({namespaces})_({services})_[^_/]+",
            namespace="${1}${3}",
            service="${2}${4}",
        ),
        arrivals="Counted as they are sent to the pods, with those that are refused because too many wait.",
        arrived=("envoy_cluster_upstream_rq_total", "envoy_cluster_upstream_rq_pending_overflow"),
        answered=("envoy_cluster_upstream_rq_completed",),
        in_flight=("envoy_cluster_upstream_rq_active",),
        waiting=("envoy_cluster_upstream_rq_pending_active",),
        latency=Histogram("envoy_cluster_upstream_rq_time", per_second=1000.0),
        notes=(
            "`metrics.service` is the HTTPRoute with Envoy Gateway, and the Service with Contour.",
            "Retries count as requests.",
        ),
    ),
    "nginx": Preset(
        title="Ingress NGINX",
        source="source of ingress-nginx",
        releases="1.0 to 1.13",
        identified_by=ByLabels(),
        arrivals=WHEN_ANSWERED,
        arrived=("nginx_ingress_controller_requests",),
        answered=("nginx_ingress_controller_request_duration_seconds_count",),
        latency=Histogram("nginx_ingress_controller_request_duration_seconds"),
        notes=("`metrics.service` is the Kubernetes Service behind the Ingress.",),
    ),
    "traefik": Preset(
        title="Traefik",
        source="an exposition of Traefik 3, and the source of its Kubernetes providers",
        releases="3.0 and later",
        identified_by=ByName(
            label="service",
            # A port, by its number or name; under the Gateway API behind the protocol of the route, since 3.2.
            pattern="({namespaces})-({services})-(?:[^-@]+@kubernetes.*|(?:http|grpc)-[0-9]+@kubernetesgateway|"
            "(?:https?|grpc|web|tcp)-[a-z][^-@]*@kubernetes(?:crd)?)",
            namespace="${1}",
            service="${2}",
        ),
        arrivals=WHEN_ANSWERED,
        arrived=("traefik_service_requests_total",),
        answered=("traefik_service_request_duration_seconds_count",),
        latency=Histogram("traefik_service_request_duration_seconds"),
        notes=("`metrics.service` is the Kubernetes Service of an Ingress, an IngressRoute or an HTTPRoute.",),
    ),
    "epp": Preset(
        title="Endpoint picker of the Gateway API inference extension",
        source="descriptions of the endpoint picker and of llm-d's (`llm_d_epp_*`); names not checked further",
        releases="1.0 and later, and llm-d's",
        identified_by=ByPods(suffix="-epp"),
        arrivals="Counted as they arrive.",
        arrived=("llm_d_epp_request_total or inference_objective_request_total",),
        answered=("llm_d_epp_request_duration_seconds_count or inference_objective_request_duration_seconds_count",),
        in_flight=("llm_d_epp_request_running or inference_objective_running_requests",),
        waiting=("llm_d_epp_flow_control_queue_size or inference_extension_flow_control_queue_size",),
        latency=Histogram("llm_d_epp_request_duration_seconds or inference_objective_request_duration_seconds"),
        ttft=Histogram("llm_d_epp_request_ttft_seconds or inference_objective_request_ttft_seconds"),
        notes=(
            "`metrics.service` is the InferencePool, whose endpoint picker is the Deployment `<service>-epp`. The "
            "counters appear with the first request.",
        ),
    ),
}
"""Gateways and proxies, by their names in the spec."""
