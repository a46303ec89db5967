"""A history from the real Prometheus: long ranges, gaps, refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_loadgen.traces import read_trace
from rlscaler_rl.workloads import WorkloadError
from rlscaler_rl.workloads.cli import trace
from rlscaler_rl.workloads.history import TimeRange, read_history


@pytest.fixture
def url(cluster: ClusterInfo) -> str:
    assert cluster.prometheus_url is not None
    return cluster.prometheus_url


@pytest.fixture
def last_days() -> TimeRange:
    """25,001 points, more than one query may ask for."""
    end = datetime.now(UTC)
    return TimeRange.between(end - timedelta(seconds=15 * 25_001), end, 15)


def test_a_long_history_is_imported(url: str, last_days: TimeRange, tmp_path: Path) -> None:
    out = tmp_path / "history.csv.gz"
    query = "vector(time() % 3600 / 15)"
    span = ("--from", str(last_days.begin), "--to", str(last_days.end), "--step", "15s")
    result = CliRunner().invoke(trace, ["import", "--prometheus", url, "--query", query, *span, str(out)])
    assert result.exit_code == 0, result.output
    made = read_trace(out)
    np.testing.assert_allclose(made.rate, [moment % 3600 / 15 for moment in last_days.times()])
    assert made.comments[0] == f"Source: {url}, query {query}"


def test_what_prometheus_does_not_have_is_named(url: str, last_days: TimeRange) -> None:
    with pytest.raises(WorkloadError, match=r"samples are missing, the first at .*--fill hold or --fill zero"):
        read_history(url, "vector(1) and on() (vector(time()) % 100 < 50)", last_days)
    with pytest.raises(WorkloadError, match=r"no data from .*; check the query and the range"):
        read_history(url, "nothing_that_exists", last_days)
    with pytest.raises(WorkloadError, match=r"HTTP 400: .*parse error"):
        read_history(url, "sum(", last_days)
