"""What the pages say exists: policies, metrics, alerts, reasons, values, files."""

import ast
import re
from functools import cache
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
import yaml

from rlscaler_core.api import RLScalingPolicy
from rlscaler_dev.generate import pages as generated
from tests.unit.docs.pages import PAGES, ROOT, blocks, name

RULES = ROOT / "helm/rlscaler/rules/rlscaler.yaml"
REASONS = ROOT / "docs/operations/conditions.md"
RECORDS = ROOT / "docs/decisions"
RUNBOOKS = ROOT / "docs/operations/runbooks"
PACKAGES = tuple(f"rlscaler_{name}" for name in ("core", "operator", "rl", "live", "loadgen", "scheduler", "dev"))
KIND = "RLScalingPolicy"
VALUES_PAGES = ("docs/operations/install.md",)

FILE = re.compile(
    r"(?<![\w./*-])((?:core|operator|rl/rlscaler_rl|live|loadgen|dev|tests|benchmarks|image|requirements|admission"
    r"|crds|helm|examples)/[\w./-]*\w)(?!\w*\*)"
)
"""The path of a file or folder of the source tree."""

REASON_OF = {"Problem", "unknown", "MetricsError", "CredentialError", "ModelUnavailableError", "Conflict", "Finding"}
REASON = re.compile(r"^[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+$")


@pytest.mark.parametrize(
    "block", [b for b in blocks() if b.language == "yaml" and KIND in b.text], ids=lambda b: b.page
)
def test_policies_are_valid(block) -> None:
    for body in yaml.safe_load_all(block.text):
        if body.get("kind") == KIND:
            RLScalingPolicy.model_validate(body)


@pytest.mark.parametrize("block", [b for b in blocks() if b.page in VALUES_PAGES and b.language == "yaml"])
def test_values_fit_the_charts_schema(block) -> None:
    schema = yaml.safe_load((ROOT / "helm/rlscaler/values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((ROOT / "helm/rlscaler/values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(_merged(defaults, yaml.safe_load(block.text)), schema)


def _merged(below: dict, above: dict) -> dict:
    return below | {
        key: _merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_metrics_that_are_named_exist(page: Path) -> None:
    known = _metrics()
    named = set(re.findall(r"\brlscaler_[a-z0-9_]+\b", page.read_text(encoding="utf-8")))
    named -= {word for word in named if word.startswith((*PACKAGES, "rlscaler_dashboards"))}
    assert {one if one in known else re.sub(r"_(bucket|sum|count)$", "", one) for one in named} <= known


@cache
def _metrics() -> frozenset[str]:
    plugin = (ROOT / "dev/rlscaler_dev/cluster/tools/scheduler/metrics.go").read_text(encoding="utf-8")
    return frozenset(re.findall(r"[`\"](rlscaler_\w+)[`\"]", generated.metrics() + plugin))


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    wanted = {generated.page_name(rule["alert"]): rule["alert"] for rule in generated.alerting_rules(RULES)}
    assert {path.name for path in RUNBOOKS.glob("*.md")} - {"index.md"} == set(wanted)
    for path, alert in wanted.items():
        assert (RUNBOOKS / path).read_text(encoding="utf-8").startswith(f"# {alert}\n")


def test_every_alert_links_its_runbook() -> None:
    for rule in generated.alerting_rules(RULES):
        page = generated.page_name(rule["alert"]).removesuffix(".md")
        assert rule["annotations"]["runbook"] == f"docs/operations/runbooks/{page}.md", rule["alert"]


def test_every_reason_is_explained() -> None:
    text = REASONS.read_text(encoding="utf-8")
    missing = {reason for reason in _reasons() if f"`{reason}`" not in text}
    assert not missing, f"{name(REASONS)} does not explain {', '.join(sorted(missing))}"


def _reasons() -> set[str]:
    found = set()
    for path in Path(str(resources.files("rlscaler_operator"))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REASON_OF:
                found |= {a.value for a in node.args if isinstance(a, ast.Constant) and REASON.match(str(a.value))}
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if ROOT / "docs" not in page.parents], ids=name)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != RECORDS], ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    """Records are left out: they speak of the tree as it was."""
    named = set(FILE.findall(page.read_text(encoding="utf-8")))
    missing = {path for path in named if not (ROOT / path).exists() and not (page.parent / path).exists()}
    assert not missing


def test_every_record_has_a_title_with_its_number_and_a_line_in_the_index() -> None:
    index = (RECORDS / "index.md").read_text(encoding="utf-8")
    for path in RECORDS.glob("0*.md"):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix(f"# {path.name[:4]} ")
        assert f"| [{path.name[:4]}]({path.name}) | {title} |" in index, path.name


def test_the_glossary_has_one_line_a_term() -> None:
    rows = re.findall(
        r"^\| (?!term \|)([^-|]+[^|]*) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) == len(set(rows)) <= 40


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lists_and_tables_stand_apart(page: Path) -> None:
    """Else the site shows them as part of the paragraph before; what belongs to an item has four spaces."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    glued = re.findall(r"^(?![-*|#>]|\d+\.|\s|<!--)(\S.*)\n(?:(?:[-*]|\d+\.) |\|)", text, re.MULTILINE)
    outside = re.findall(r"^\n {2,3}(\S.*)", text, re.MULTILINE)
    assert not glued + outside


def test_the_index_of_decisions_has_each_record_once_and_in_order() -> None:
    records = sorted(path.name for path in RECORDS.glob("[0-9]*.md"))
    assert re.findall(r"^\| \[\d{4}\]\(([^)]+)\)", (RECORDS / "index.md").read_text(), re.MULTILINE) == records
