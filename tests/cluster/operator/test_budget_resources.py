"""An RLScalingBudget of GPUs and CPUs on the real API server: two services whose dominant resources differ."""

from __future__ import annotations

import pytest

from tests.harness.sharing import BUDGETS, member

pytestmark = pytest.mark.usefixtures("with_budgets")

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def operator(start, with_budgets):
    return start("--budgets")


def test_two_services_share_gpus_and_cpus_by_their_dominant_shares(operator, kube, world, wait, stays, sharing):
    """A replica of `deep` takes 2 of 14 GPUs and 1 of 20 CPUs, one of `wide` 1 GPU and 4 CPUs: 1/7 and 1/5.

    Replicas go to the smaller dominant share until `deep` has 5/7 of the GPUs and `wide` 3/5 of the CPUs: then there is
    1 GPU left, which is too few for `deep`, and 3 CPUs, which are too few for `wide`. What a replica takes of the CPUs
    is read from the pod templates.
    """
    sharing.service("deep", 400, cpu="1000m")
    sharing.service("wide", 400, cpu="4")
    wait(lambda: (sharing.gpus("deep"), sharing.gpus("wide")) == (10, 10), 120)
    gpus = {"deep": {"name": GPU, "unitsPerReplica": 2}, "wide": {"name": GPU, "unitsPerReplica": 1}}
    terms = [member(name, resources=[one, {"name": "cpu"}]) for name, one in gpus.items()]
    amounts = [{"name": GPU, "amount": 14}, {"name": "cpu", "amount": 20}]
    name = sharing.budget("both", None, *terms, resources=amounts)
    wait(lambda: (sharing.gpus("deep"), sharing.gpus("wide")) == (5, 3), 90)
    stays(lambda: (sharing.gpus("deep"), sharing.gpus("wide")), (5, 3), 10)
    wait(lambda: sharing.condition(name, "Ready") == ("True", "Ready"))
    found = wait(lambda: sharing.status(name).get("summary") == f"{GPU} 13/14 (13 borrowed), cpu 17/20 (17 borrowed)"
                 and sharing.status(name))  # fmt: skip
    assert [(one["name"], one["amount"], one["granted"], one["idle"]) for one in found["resources"]] == [
        (GPU, 14, 13, 1),
        ("cpu", 20, 17, 3),
    ]
    deep, wide = sharing.share(name, "deep"), sharing.share(name, "wide")
    assert (deep["dominantResource"], deep["resource"]) == (GPU, GPU)
    assert (wide["dominantResource"], wide["resource"]) == ("cpu", "cpu")
    assert (deep["dominantShare"], wide["dominantShare"]) == (pytest.approx(5 / 7, abs=1e-6), pytest.approx(3 / 5))
    granted = f"RLScalingBudget {name}: asked 10, granted 3: the others' shares of cpu"
    wait(lambda: (_record(operator, "wide") or {}).get("grant") == granted)

    own = [{"name": GPU, "unitsPerReplica": 1, "guaranteed": 4}, {"name": "cpu", "guaranteed": 16}]
    entries = [{"namespace": world.namespace} | one for one in (terms[0], member("wide", resources=own))]
    kube.merge(f"{BUDGETS}/{name}", {"spec": {"members": entries}})
    wait(lambda: (sharing.gpus("deep"), sharing.gpus("wide")) == (4, 4), 90)
    stays(lambda: (sharing.gpus("deep"), sharing.gpus("wide")), (4, 4), 10)
    wait(lambda: sharing.share(name, "deep").get("resource") == "cpu")
    deep = sharing.share(name, "deep")
    assert (deep["reason"], deep["because"]) == ("Guarantee", f"{world.namespace}/wide")
    text = f"granted 4: {world.namespace}/wide's guarantee of cpu"
    wait(lambda: text in (_record(operator, "deep") or {}).get("grant", ""))

    tally = operator.replayed()
    assert tally["same"] == tally["decisions"] > 10
    assert tally["sharings"] == tally["sharingsSame"] > 3


def _record(operator, name):
    """The newest decision of a policy that a grant bounds."""
    return next((record for record in reversed(operator.decisions(name)) if record["grant"]), None)
