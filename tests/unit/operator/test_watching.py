"""What kopf is told to remember of objects."""

import inspect

import kopf
import pytest
from kopf._core.intents.registries import OperatorRegistry

from rlscaler_operator.run import main
from rlscaler_operator.run.watching import NoDifferences, NoProgress


def test_only_watch_handlers_are_registered_so_nothing_needs_to_be_remembered():
    registry = kopf.get_default_registry()
    assert isinstance(registry, OperatorRegistry)
    assert inspect.iscoroutinefunction(main.policy)
    assert registry._watching.get_all_handlers()
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()


@pytest.mark.parametrize("storage", [NoDifferences(), NoProgress()])
def test_the_storages_are_whole(storage):
    """A release of kopf that asks for more must not find the default's answer."""
    asked = {name for kind in (kopf.DiffBaseStorage, kopf.ProgressStorage) for name in kind.__abstractmethods__}
    assert {name for name in asked if hasattr(storage, name)} <= set(vars(type(storage)))


async def test_startup_sets_them():
    settings = kopf.OperatorSettings()
    await main.startup(settings=settings)
    assert isinstance(settings.persistence.diffbase_storage, NoDifferences)
    assert isinstance(settings.persistence.progress_storage, NoProgress)
