"""Where objects are on the API server."""

import pytest

from rlscaler_dev.cluster.kube import collection, path_of


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Deployment", "deployments"),
        ("Gateway", "gateways"),
        ("GatewayClass", "gatewayclasses"),
        ("RLScalingPolicy", "rlscalingpolicies"),
        ("EndpointSlice", "endpointslices"),
    ],
)
def test_a_collection_has_the_plural_of_the_kind(kind: str, plural: str) -> None:
    assert collection("x/v1", kind, "ns") == f"/apis/x/v1/namespaces/ns/{plural}"


def test_an_object_is_in_its_namespace_unless_its_kind_has_none() -> None:
    assert path_of({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}) == (
        "/api/v1/namespaces/default/services/a"
    )
    assert path_of({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "namespace": "x"}}) == (
        "/api/v1/nodes/n"
    )
