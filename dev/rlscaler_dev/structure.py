"""`rlscaler structure`: how large the product is, how its packages hang together, and which files one run enters.

`measure` reads the source tree as text, so it also measures a checkout of another release. `walk` runs a Python program
and lists the product's files that it enters.
"""

from __future__ import annotations

import ast
import json
import runpy
import statistics
import sys
import threading
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType
from typing import Any

import click
import networkx
from rich.console import Console
from rich.table import Table

from rlscaler_core.options import output_option

GENERATED = "_pb2"
"""Part of the name of generated modules, which are not counted."""


@click.group()
def structure() -> None:
    """Measure the source tree: size, rooms, floors, circles, contracts, and the way of a run."""


class Tree:
    """The product's modules below a checkout: every folder FOLDER/rlscaler_NAME."""

    def __init__(self, root: Path) -> None:
        self.root = root
        packages = [path for path in sorted(root.glob("*/rlscaler_*")) if path.is_dir() and any(path.glob("*.py"))]
        self.packages = {path.name: path for path in packages}
        self.modules = {
            self.name_of(path): path
            for package in packages
            for path in sorted(package.rglob("*.py"))
            if GENERATED not in path.stem
        }

    def name_of(self, path: Path) -> str:
        """Dotted name of a module below the checkout."""
        parts = path.relative_to(self.root).with_suffix("").parts[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def room_of(self, module: str) -> str:
        """The room of a module: its package and the folder or loose module directly below it."""
        return ".".join(module.split(".")[:2])

    def imports(self, module: str) -> Iterator[str]:
        """The product's modules that a module imports, wherever the statement stands."""
        tree = ast.parse(self.modules[module].read_text(encoding="utf-8"))
        package = module if self.modules[module].name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *filter(None, [node.module])])
                names = [full if (full := f"{base}.{a.name}") in self.modules else base for a in node.names]
            else:
                continue
            yield from (name for name in names if name in self.modules and name != module)


def _floors(graph: networkx.DiGraph) -> int:
    """Levels of an import graph whose circles are taken as one node each."""
    return networkx.dag_longest_path_length(networkx.condensation(graph)) + 1 if len(graph) else 0


def _circles(graph: networkx.DiGraph) -> int:
    return sum(len(part) > 1 for part in networkx.strongly_connected_components(graph))


def _function_lengths(paths: Iterable[Path]) -> list[int]:
    found = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                found.append(node.end_lineno - node.lineno + 1)
    return found


def measured(tree: Tree) -> list[dict[str, Any]]:
    """One row a package, the last for all: files, lines, medians, rooms, loose modules, floors, arrows, circles."""
    arrows = {module: set(tree.imports(module)) for module in tree.modules}
    rows = []
    for package in [*tree.packages, ""]:
        inside = [m for m in tree.modules if not package or m == package or m.startswith(f"{package}.")]
        paths = [tree.modules[m] for m in inside]
        lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
        files = [(m, path) for m, path in zip(inside, paths, strict=True) if path.name != "__init__.py"]
        sizes = [lengths[path] for _, path in files]
        graph: networkx.DiGraph = networkx.DiGraph()
        rooms: networkx.DiGraph = networkx.DiGraph()
        rooms.add_nodes_from(tree.room_of(m) for m, _ in files)
        for module in inside:
            graph.add_edges_from((module, other) for other in arrows[module] if other in inside)
        rooms.add_edges_from(
            (tree.room_of(a), tree.room_of(b)) for a, b in graph.edges if tree.room_of(a) != tree.room_of(b)
        )
        rooms.remove_nodes_from(list(tree.packages))
        rows.append(
            {
                "package": package or "all",
                "files": len(files),
                "lines": sum(lengths.values()),
                "file_median": round(statistics.median(sizes)),
                "function_median": statistics.median(_function_lengths(paths) or [0]),
                "loose": sum(m.count(".") == 1 for m, _ in files) if package else None,
                "rooms": len(rooms),
                "floors": _floors(rooms),
                "arrows": len(rooms.edges),
                "circles": _circles(graph),
            }
        )
    return rows


def _checks(tree: Tree) -> dict[str, Any]:
    """Number of import contracts, and the share of the modules that mypy checks strictly."""
    settings = tomllib.loads((tree.root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = [
        pattern
        for override in settings["mypy"].get("overrides", [])
        if override.get("strict")
        for pattern in [override["module"]] * isinstance(override["module"], str) or override["module"]
    ]
    strict = [
        module
        for module in tree.modules
        if settings["mypy"].get("strict") or any(fnmatch(module, p) or f"{module}.*" == p for p in patterns)
    ]
    return {
        "import_contracts": len(settings["importlinter"]["contracts"]),
        "mypy_strict_percent": round(100 * len(strict) / len(tree.modules), 1),
    }


def _documents(root: Path) -> dict[str, int]:
    """Pages and words of the documentation, README included."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return {"pages": len(pages), "words": sum(len(page.read_text(encoding="utf-8").split()) for page in pages)}


@structure.command()
@click.argument("root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@output_option
@click.option("--field", help="Also list the files that name a field, such as budget_per_hour.")
def measure(root: Path, output: str, field: str | None) -> None:
    """Measure the packages of the checkout ROOT."""
    tree = Tree(root.resolve())
    rows = measured(tree)
    result: dict[str, Any] = {"packages": rows, **_checks(tree), "documents": _documents(root)}
    if field is not None:
        camel = "".join(part.title() if i else part for i, part in enumerate(field.split("_")))
        texts = {module: path.read_text(encoding="utf-8") for module, path in tree.modules.items()}
        result["field"] = _entered(tree, [m for m, text in texts.items() if field in text or camel in text])
    if output == "json":
        click.echo(json.dumps(result, indent=2))
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in rows[0]:
        text = column == "package"
        table.add_column(column.replace("_", "\n"), justify="left" if text else "right", no_wrap=text)
    for row in rows:
        name, *numbers = row.values()
        shown = ("" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in numbers)
        table.add_row(name.removeprefix("rlscaler_"), *shown)
    console = Console()
    console.print(table)
    for name, value in result.items():
        if name != "packages":
            console.print(f"{name}: {value}", highlight=False)


def _entered(tree: Tree, modules: Iterable[str]) -> dict[str, Any]:
    found = sorted(set(modules))
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in found:
        rooms[tree.room_of(module)].append(module.rpartition(".")[2])
    return {"files": len(found), "rooms": len(rooms), "entered": dict(rooms)}


@structure.command(context_settings={"ignore_unknown_options": True})
@click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")
@click.option("--begin", help="Name of the function whose first call starts the record; default: the program's start.")
@click.option("--end", help="Name of the function whose first call afterwards ends the record.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def walk(root: Path, begin: str | None, end: str | None, program: tuple[str, ...]) -> None:
    """Run PROGRAM (a Python file and its arguments) and print the product's files that it enters, as JSON."""
    tree = Tree(root.resolve())
    paths = {str(path): module for module, path in tree.modules.items()}
    found: set[str] = set()
    recording, ended = begin is None, False

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal recording, ended
        if event != "call" or ended:
            return
        code = frame.f_code
        if not recording:
            recording = code.co_name == begin
        elif end is not None and code.co_name == end:
            ended = True
        if recording and not ended and code.co_name != "<module>" and (module := paths.get(code.co_filename)):
            found.add(module)

    sys.argv = list(program)
    sys.path.insert(0, str(Path(program[0]).resolve().parent))
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        runpy.run_path(program[0], run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    click.echo(json.dumps(_entered(tree, found), indent=2), err=True)
