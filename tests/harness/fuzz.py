"""Random specs from the CRD's own schema: most of them nearly right, some of them absurd."""

from __future__ import annotations

import random
import string
from typing import Any

Schema = dict[str, Any]

STRINGS = ("a", "chat", "chat-gpu", "x-1.y-2", "http://127.0.0.1:9", "https://p.example:9090/x", "key", "m/p.onnx")
ODD_STRINGS = ("", " ", "../../etc/passwd", "-", "A" * 300, "\u2603", "a\nb", "{}", "http://", "$(reboot)", "null", "0")
ODD_VALUES: tuple[Any, ...] = (None, -1, 0, 2**31, 2**63, 1e308, 0.5, "", "1", True, [], {}, [[]], {"a": 1}, "\u2603")


OPTIONAL = 0.18
"""Share of the optional fields that are set: with more, rules about pairs of fields refuse nearly every object."""


class Fuzz:
    """`oddity` is the share of values that break a rule."""

    def __init__(self, seed: int, oddity: float) -> None:
        self._random, self._oddity = random.Random(seed), oddity

    def value(self, schema: Schema, name: str = "") -> Any:
        """One random value."""
        if self._random.random() < self._oddity:
            return self._random.choice(ODD_VALUES)
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        make = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda _, __: self._random.random() < 0.5,
        }
        return make[schema["type"]](schema, name)

    def _object(self, schema: Schema, _: str) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        made = {
            name: self.value(part, name)
            for name, part in schema.get("properties", {}).items()
            if (name in required and self._random.random() >= self._oddity) or self._random.random() < OPTIONAL
        }
        if "deployment" in schema.get("properties", {}) and self._random.random() >= self._oddity:
            # A target is named once, and mostly as a Deployment.
            made = {name: value for name, value in made.items() if name not in ("name", "kind", "apiVersion")}
            made["deployment"] = self.value({"type": "string"}, "deployment")
        if "additionalProperties" in schema:
            for _ in range(self._random.randint(0, 3)):
                name = self._random.choice(("arrivalRate", "p95Latency", "gpuUtilization", "nonsense"))
                made[name] = self.value(schema["additionalProperties"])
        if self._random.random() < self._oddity:
            made["".join(self._random.choices(string.ascii_letters, k=6))] = 1
        return made

    def _array(self, schema: Schema, _: str) -> list[Any]:
        return [self.value(schema["items"]) for _ in range(self._random.randint(1, 1 + schema.get("maxItems", 3)))]

    def _string(self, schema: Schema, name: str) -> str:
        if self._random.random() < self._oddity:
            return self._random.choice(ODD_STRINGS)
        if name == "url":
            return self._random.choice([one for one in STRINGS if one.startswith("http")])
        if name == "deployment":
            return f"fuzz-{self._random.randint(0, 9)}"
        return self._random.choice(STRINGS[:4] if "pattern" in schema else STRINGS)

    def _integer(self, schema: Schema, name: str) -> int:
        lowest, highest = int(schema.get("minimum", -5)), int(schema.get("maximum", 1000))
        if name == "maxReplicas":
            lowest = min(20, highest)
        if name in ("minReplicas", "stepSize"):
            highest = min(20, highest)
        if self._random.random() < self._oddity:
            return self._random.choice((lowest - 1, highest + 1))
        return self._random.choice((lowest, highest, self._random.randint(lowest, highest)))

    def _number(self, schema: Schema, _: str) -> float:
        lowest = float(schema.get("minimum", schema.get("exclusiveMinimum", 0)))
        highest = float(schema.get("maximum", schema.get("exclusiveMaximum", 1e6)))
        return self._random.choice((self._random.uniform(lowest, highest), lowest + 1e-9, highest - 1e-3))
