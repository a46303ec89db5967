"""docs/guarantees.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "guarantees.md").read_text())))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part)
def test_the_proof_of_a_promise_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_promise_has_a_proof() -> None:
    rows = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| ")]
    promises = [line for line in rows if not line.startswith("| promise")]
    assert len(promises) > 20
    assert all("::" in line or "the same run" in line for line in promises)
