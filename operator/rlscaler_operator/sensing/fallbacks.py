"""Constant sides of own queries, such as `or vector(0)`: in an outage they would pass for a measurement. Pure.

`sum(rate(requests_total[1m])) or vector(0)` answers 0 where the exporter is gone, and a service under load would be
scaled down. So a side of `or` that has a value without any series is left out of the query that is sent, and the value
is unknown where only that side has one. Series that Prometheus writes of its own accord (`up`) exist in an outage too;
`0 * (up == 1)` does not. A text that this grammar does not know is sent unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

REASON = "ConstantFallback"

REMEDY = (
    'where no series means no request, let a series of the exporter say so: `or 0 * sum(up{job="the exporter"} == 1)`'
)

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<matchers>\{(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`|[^"'`{}])*\})
    |(?P<range>\[[^\]]*\])
    |(?P<number>(?:\d[\w.]*(?:(?<=[eE])[+-]\d+)?|\.\d\w*))
    |(?P<name>[a-zA-Z_:][\w:.]*)
    |(?P<sign>==|!=|>=|<=|[-+*/%^<>@(),])""",
    re.VERBOSE,
)

_STRENGTH = {
    **dict.fromkeys(("or", "default"), 1),
    **dict.fromkeys(("and", "unless", "if", "ifnot"), 2),
    **dict.fromkeys(("==", "!=", ">=", "<=", ">", "<"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
"""Binary operators of PromQL and MetricsQL by how strongly they bind."""

_UNARY = 6
_MATCHING = ("on", "ignoring", "group_left", "group_right", "fill", "fill_left", "fill_right")
_GROUPING = ("by", "without")
_SCALARS = ("scalar", "time", "pi")
"""Functions whose value is a scalar."""

_ABSENCE = ("absent", "absent_over_time")
_SYNTHETIC = re.compile(r"up|scrape_\w+")
"""Series that Prometheus writes for a target that it cannot scrape, too."""


class Measured(NamedTuple):
    """Part of an own query whose value comes from series."""

    promql: str
    left_out: str = ""
    """Constant sides that were taken out of it, for messages."""
    refused: bool = False
    """True where its value comes from nothing but the absence of series."""


@dataclass(slots=True)
class _Node:
    kind: str
    """`constant`, `series`, `synthetic`, `call`, or a binary operator; parentheses are a call without a name."""
    begin: int
    end: int
    parts: tuple[_Node, ...] = ()
    name: str = ""

    def has(self, kind: str, names: tuple[str, ...] = ()) -> bool:
        here = self.kind == kind and (not names or self.name in names)
        return here or any(part.has(kind, names) for part in self.parts)

    @property
    def constant(self) -> bool:
        """True where it can have a value without a series of an exporter."""
        if self.kind in ("constant", "synthetic"):
            return True
        if self.kind == "series":
            return False
        if self.kind == "call" and self.name in _ABSENCE:
            return True
        if self.kind in ("or", "default"):
            return any(part.constant for part in self.parts)
        if self.kind in ("unless", "ifnot"):
            return self.parts[0].constant
        if _STRENGTH.get(self.kind) == 3 and self.has("synthetic") and not self.has("call", _ABSENCE):
            return self.name == "bool"
        return all(part.constant for part in self.parts)

    @property
    def scalar(self) -> bool:
        """True where its value is a scalar and no vector."""
        if self.kind == "call":
            return self.parts[0].scalar if not self.name else self.name in _SCALARS
        return self.kind == "constant" or (bool(self.parts) and all(part.scalar for part in self.parts))

    def cuts(self) -> list[tuple[int, int]] | None:
        """Return the spans without which it has no value without series; None where nothing would be left."""
        if not self.constant:
            return []
        if self.kind in ("or", "default"):
            left, right = self.parts
            first, second = left.cuts(), right.cuts()
            if first is None:
                return None if second is None else [(left.begin, right.begin), *second]
            return [*first, *([(left.end, right.end)] if second is None else second)]
        if self.kind == "call" and self.name in _ABSENCE:
            return None
        parts = self.parts[:1] if self.kind in ("unless", "ifnot") else self.parts
        known = [spans for part in parts if (spans := part.cuts()) is not None]
        return [span for spans in known for span in spans] if known else None


class _Parser:
    """Reader of one query by precedence. Raises ValueError where the text is none of this grammar."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int, int]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(text[at:])
            at = match.end()
            if match.lastgroup != "space":
                self._tokens.append((str(match.lastgroup), match.group(), match.start(), at))
        self._at = 0

    def whole(self) -> _Node:
        node = self._binary(1)
        if self._at < len(self._tokens):
            raise ValueError(self._word())
        return node

    def _word(self, ahead: int = 0) -> str:
        """Return the text of a token in small letters; empty at the end."""
        at = self._at + ahead
        return self._tokens[at][1].lower() if at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> tuple[str, str, int, int]:
        if self._at >= len(self._tokens) or (wanted and self._word() != wanted):
            raise ValueError(wanted)
        self._at += 1
        return self._tokens[self._at - 1]

    def _binary(self, least: int) -> _Node:
        left = self._unary()
        while (strength := _STRENGTH.get(operator := self._word(), 0)) >= least:
            self._take()
            modifier = self._modifiers()
            # Only `^` binds to the right.
            right = self._binary(strength if operator == "^" else strength + 1)
            left = _Node(operator, left.begin, right.end, (left, right), modifier)
        return left

    def _modifiers(self) -> str:
        """Skip the modifiers of a binary operator, and return `bool` where it is among them, else an empty text."""
        modifier = ""
        while (word := self._word()) == "bool" or word in _MATCHING:
            self._take()
            modifier = "bool" if word == "bool" else modifier
            if word != "bool" and self._word() == "(":
                self._skip_group()
        return modifier

    def _skip_group(self) -> None:
        self._take("(")
        while self._word() != ")":
            self._take()
        self._take(")")

    def _unary(self) -> _Node:
        if self._word() in ("+", "-"):
            begin = self._take()[2]
            part = self._binary(_UNARY)
            return _Node("call", begin, part.end, (part,))
        return self._postfix(self._primary())

    def _postfix(self, node: _Node) -> _Node:
        while True:
            if self._kind() in ("range", "matchers"):
                node.end = self._take()[3]
            elif self._word() in ("offset", "@"):
                self._take()
                if self._word() in ("+", "-"):
                    self._take()
                node.end = self._take()[3]
                if self._word() == "(":
                    self._skip_group()
                    node.end = self._tokens[self._at - 1][3]
            else:
                return node

    def _primary(self) -> _Node:
        kind, text, begin, end = self._take()
        if kind in ("number", "text") or (kind == "name" and text.lower() in ("inf", "nan")):
            return _Node("constant", begin, end)
        if kind == "matchers":
            return _Node("series", begin, end)
        if text == "(":
            parts = [self._binary(1)]
            return _Node("call", begin, self._take(")")[3], tuple(parts))
        if kind != "name":
            raise ValueError(text)
        if self._word() in _GROUPING and self._word(1) == "(":
            self._take()
            self._skip_group()
        if self._word() != "(":
            return _Node("synthetic" if _SYNTHETIC.fullmatch(text) else "series", begin, end)
        return self._call(text.lower(), begin)

    def _call(self, name: str, begin: int) -> _Node:
        self._take("(")
        parts = []
        while self._word() != ")":
            parts.append(self._binary(1))
            if self._word() == ",":
                self._take()
        end = self._take(")")[3]
        if self._word() in _GROUPING and self._word(1) == "(":
            self._take()
            self._skip_group()
            end = self._tokens[self._at - 1][3]
        return _Node("call", begin, end, tuple(parts), name)


@lru_cache(maxsize=4096)
def measured(promql: str) -> Measured:
    """Return the part of an own query whose value comes from series."""
    try:
        node = _Parser(promql).whole()
        cuts = node.cuts()
        absence = node.has("call", _ABSENCE)
    except (ValueError, RecursionError):
        return Measured(promql)
    if cuts is None:
        # A query without series is meant as a constant, or as a time of day: no outage changes it.
        return Measured(promql, refused=absence)
    text, at = "", 0
    for begin, end in sorted(cuts):
        text, at = text + promql[at:begin], end
    left_out = "; ".join(" ".join(promql[begin:end].split()) for begin, end in sorted(cuts))
    return Measured(text + promql[at:], left_out)


@lru_cache(maxsize=4096)
def is_scalar(promql: str) -> bool:
    """Return True where the value of an own query is a scalar, as `scalar(sum(...))` is, and no vector."""
    try:
        return _Parser(promql).whole().scalar
    except (ValueError, RecursionError):
        return False


def refusal_of(name: str) -> str:
    """Return the message for a query whose value comes from the absence of series."""
    return (
        f"spec.metrics.queries.{name} has a value where series are missing only, as in an outage: ask for the series "
        "themselves"
    )


def warning_of(name: str, left_out: str) -> str:
    """Return the message for a query that has no value without its constant side."""
    return (
        f"spec.metrics.queries.{name}: `{left_out}` is left out, since in an outage it would pass for a measured "
        f"value: remove it; {REMEDY}"
    )
