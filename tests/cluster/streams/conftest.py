"""One broker for the tests of this folder, and a group that reads for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.kafka import Reader, TestBroker, own_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with own_broker("streams") as one:
        yield one


@pytest.fixture
def reader(broker: TestBroker) -> Iterator[Callable[..., Reader]]:
    """Start a consumer of a group; all end with the test."""
    with ExitStack() as ends:

        def start(group: str, topic: str, **settings: Any) -> Reader:
            one = Reader(broker.servers, group, topic, **settings)
            ends.callback(one.close)
            return one

        yield start
