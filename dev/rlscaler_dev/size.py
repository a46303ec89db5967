"""Counts of lines, words and odd docstrings of the source tree, and their limits in dev/size.toml."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

GATE = Path("dev/size.toml")
HEADER = """\
# Most lines, words and odd docstrings that `make lint` accepts. `rlscaler structure check --write` lowers the numbers.
# A higher number needs a new reason in the same commit; with `--reason TEXT` all numbers become the present counts.
"""
EMPTY = {"one", "found", "made", "asked", "said", "kept"}
DOCSTRINGS = {
    "what": re.compile(r"\bwhat\b", re.IGNORECASE),
    "begins": re.compile(r"(What|Who|How|Which)\b"),
    "gives": re.compile(r"(Give|Say|Tell)s?\b"),
}
COUNTED = {
    "lines": ("lines", "delete or merge code"),
    "tests": ("lines of tests", "merge or delete tests"),
    "words": ("words", "shorten a page"),
    "what": ("docstrings with 'what'", "name the thing"),
    "begins": ("docstrings that begin with What, Who, How or Which", "begin with a noun or a verb"),
    "gives": ("docstrings that begin with Give, Say or Tell", "write Return"),
    "empty": (f"variables called {', '.join(sorted(EMPTY))}", "name them by their noun"),
}
"""Noun and remedy of each count, by its name in dev/size.toml."""

Counts = dict[str, Counter[str]]
"""Counts by name and package: those of the gate, and `files`, `docstrings` and `names`, which have no limit."""


def counted(root: Path) -> Counts:
    """Count the committed files below `root`; generated modules and the charts' generated pages are left out."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=root, capture_output=True, text=True, check=True)
    counts: Counts = {name: Counter() for name in (*COUNTED, "files", "docstrings", "names")}
    for path in (root / name for name in listed.stdout.split()):
        first, *rest = path.relative_to(root).parts
        if not path.is_file() or "_pb2" in path.name or first == "helm":
            continue
        text = path.read_text(encoding="utf-8")
        folder = f"{first}/{rest[0]}" if len(rest) > 1 else first if rest else "."
        if path.suffix == ".md":
            counts["words"][folder] += len(text.split())
        elif first == "tests":
            counts["tests"][folder] += text.count("\n")
        else:
            counts["files"][first] += 1
            counts["lines"][first] += text.count("\n")
            _count_english(ast.parse(text), first, counts)
    return counts


def _count_english(tree: ast.Module, package: str, counts: Counts) -> None:
    for text in _docstrings(tree):
        counts["docstrings"][package] += 1
        for name, pattern in DOCSTRINGS.items():
            # `match` for the begin of a docstring, `search` for a word anywhere in it.
            counts[name][package] += bool((pattern.search if name == "what" else pattern.match)(text.strip()))
    for node in ast.walk(tree):
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        name = node.arg if isinstance(node, ast.arg) else node.id if stored else ""  # type: ignore[attr-defined]
        counts["names"][package] += bool(name)
        counts["empty"][package] += name in EMPTY


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from filter(None, [ast.get_docstring(node)])
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                    value = after.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield value.value


def problems(counts: Counts, allowed: dict[str, dict[str, int]]) -> list[str]:
    """Return a sentence for every count above its limit; a package without a limit may have nothing."""
    return [
        f"{package}: {number:,} {noun}, {limit:,} allowed: {remedy}, or raise the number in {GATE} with a reason"
        for name, (noun, remedy) in COUNTED.items()
        for package, number in sorted(counts[name].items())
        if number > (limit := allowed.get(name, {}).get(package, 0))
    ]


def unexplained(before: str, now: str) -> list[str]:
    """Return a sentence for every limit that rose between two texts of the gate's file while the reason stayed."""
    old, new = tomllib.loads(before), tomllib.loads(now)
    if old["reason"] != new["reason"]:
        return []
    raised = [
        (f"{name}.{package}", old[name].get(package, 0), limit)
        for name in COUNTED
        for package, limit in new[name].items()
        if limit > old[name].get(package, 0)
    ]
    return [f"{GATE}: {name} rises from {low:,} to {high:,}: write a new reason" for name, low, high in raised]


def committed(root: Path, now: str) -> str:
    """Return the gate's file of the last commit in which it may differ; without git, the present one."""
    for commit in ("HEAD", "HEAD~1"):
        command = ["git", "show", f"{commit}:{GATE}"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout != now:
            return done.stdout
    return now


def rendered(reason: str, limits: Mapping[str, Mapping[str, int]]) -> str:
    """Return the text of the gate's file: one line a package, sorted."""
    parts = [f"{HEADER}reason = {json.dumps(reason)}\n"]
    for name in COUNTED:
        lines = [f'"{package}" = {limit}\n' for package, limit in sorted(limits[name].items()) if limit]
        parts.append(f"\n[{name}]\n" + "".join(lines))
    return "".join(parts)
