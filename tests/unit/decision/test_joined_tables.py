"""What a batch remembers of the ones before: enough not to join again, and no more the longer it runs."""

import numpy as np

from rlscaler_core.decision import batch
from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.types import Samples


def one(rate: float) -> Samples:
    return make_samples(1, time=1e9, arrival_rate=rate, spec_replicas=(1, 1), ready_replicas=(1, 1))


def test_the_same_rows_are_joined_once():
    joins, parts = batch.Joins[Samples](), [one(1.0), one(2.0)]
    table = joins.join(parts)
    assert joins.join(list(parts)) is table
    np.testing.assert_array_equal(table.arrival_rate, [1.0, 2.0])


def test_few_policies_in_ever_new_company_are_not_kept_for_ever():
    joins = batch.Joins[Samples]()
    parts = [one(float(rate)) for rate in range(20)]
    for number in range(500):
        joins.join([*parts[: number % 20], one(0.5)])
    assert len(joins._known) <= batch.JOINED_TABLES


def test_many_policies_are_bounded_by_their_rows():
    joins, parts = batch.Joins[Samples](), [one(1.0)] * 1000
    for _ in range(20):
        joins.join([*parts, one(0.5)])
    assert sum(len(known) for known, _ in joins._known) <= batch.JOINED_ROWS
