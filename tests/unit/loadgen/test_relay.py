"""What workers report, recorded by the master as if it had happened there."""

from __future__ import annotations

import io

import numpy as np

from rlscaler_loadgen.results import Recorder, Relay, replay


def recorder(rows: io.StringIO) -> Recorder:
    return Recorder(np.full(4, 2.0), 1000.0, 5000.0, 1000.0, requests=rows)


def happen(to: Recorder | Relay, second: int) -> None:
    to.sent(second + 0.25, 3.0)
    to.ended(second + 0.5, second + 0.25, 250.0, 200, "gpu")
    to.sent(second + 0.75)


def test_a_report_replayed_is_what_happened() -> None:
    here, there = io.StringIO(), io.StringIO()
    local, remote, relay = recorder(here), recorder(there), Relay()
    for second in range(4):
        happen(local, second)
        happen(relay, second)
        if second % 2:
            replay(remote, relay.take())
    assert relay.outstanding == local.outstanding == 4
    assert remote.finish(4.0) == local.finish(4.0)
    assert there.getvalue() == here.getvalue()
