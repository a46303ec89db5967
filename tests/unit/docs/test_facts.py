"""What the pages say exists: policies, metrics, alerts, reasons, values, files."""

import ast
import re
from functools import cache
from importlib import resources
from pathlib import Path

import jsonschema
import yaml
from pydantic import ValidationError

from rlscaler_core.api import RLScalingPolicy
from rlscaler_dev.generate import pages as generated
from tests.unit.docs.pages import ROOT, blocks, texts

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


def test_policies_are_valid() -> None:
    failures = []
    examples = [block for block in blocks() if block.language == "yaml" and KIND in block.text]
    assert len(examples) > 10
    for block in examples:
        for body in yaml.safe_load_all(block.text):
            if body.get("kind") == KIND:
                try:
                    RLScalingPolicy.model_validate(body)
                except ValidationError as error:
                    failures.append(f"{block.page}: {error}")
    assert not failures


def test_values_fit_the_charts_schema() -> None:
    schema = yaml.safe_load((ROOT / "helm/rlscaler/values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((ROOT / "helm/rlscaler/values.yaml").read_text(encoding="utf-8"))
    examples = [block.text for block in blocks() if block.page in VALUES_PAGES and block.language == "yaml"]
    assert examples
    for text in examples:
        jsonschema.validate(_merged(defaults, yaml.safe_load(text)), schema)


def _merged(below: dict, above: dict) -> dict:
    return below | {
        key: _merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }


def test_metrics_that_are_named_exist() -> None:
    known = _metrics()
    failures = {}
    for page, text in texts().items():
        named = set(re.findall(r"\brlscaler_[a-z0-9_]+\b", text))
        named -= {word for word in named if word.startswith((*PACKAGES, "rlscaler_dashboards"))}
        unknown = {name if name in known else re.sub(r"_(bucket|sum|count)$", "", name) for name in named} - known
        if unknown:
            failures[page] = unknown
    assert not failures


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
    assert not missing, f"{REASONS} does not explain {', '.join(sorted(missing))}"


def _reasons() -> set[str]:
    found = set()
    for path in Path(str(resources.files("rlscaler_operator"))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REASON_OF:
                found |= {a.value for a in node.args if isinstance(a, ast.Constant) and REASON.match(str(a.value))}
    return found


def test_links_of_pages_outside_the_site_lead_somewhere() -> None:
    links = [
        (page, target)
        for page, text in texts().items()
        if not page.startswith("docs/")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    ]
    dead = [
        (page, target) for page, target in links if "://" not in target and not ((ROOT / page).parent / target).exists()
    ]
    assert not dead


def test_files_that_are_named_exist() -> None:
    """Records are left out: they speak of the tree as it was."""
    failures = {}
    for page, text in texts().items():
        if page.startswith("docs/decisions/"):
            continue
        folders = (ROOT, (ROOT / page).parent)
        missing = {path for path in FILE.findall(text) if not any((folder / path).exists() for folder in folders)}
        if missing:
            failures[page] = missing
    assert not failures


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


def test_lists_and_tables_stand_apart() -> None:
    """Else the site shows them as part of the paragraph before; what belongs to an item has four spaces."""
    failures = {}
    for page, text in texts().items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        glued = re.findall(r"^(?![-*|#>]|\d+\.|\s|<!--)(\S.*)\n(?:(?:[-*]|\d+\.) |\|)", prose, re.MULTILINE)
        outside = re.findall(r"^\n {2,3}(\S.*)", prose, re.MULTILINE)
        if glued + outside:
            failures[page] = glued + outside
    assert not failures


def test_the_index_of_decisions_has_each_record_once_and_in_order() -> None:
    records = sorted(path.name for path in RECORDS.glob("[0-9]*.md"))
    assert re.findall(r"^\| \[\d{4}\]\(([^)]+)\)", (RECORDS / "index.md").read_text(), re.MULTILINE) == records
