"""Policies whose texts are nearly right, by grammar, beside an innocent one that misses no tick."""

import random

import pytest

from rlscaler_operator.exceptions import CredentialError
from rlscaler_operator.sensing.access import certificates_of
from tests.unit.operator.test_fence import body, engine, ready, turn  # noqa: F401

GRAMMAR = {
    "url": ["{scheme}://{host}{port}{path}"],
    "scheme": ["http", "https", "HTTP"],
    "host": ["a", "[::1]", "[x", "x]", "[", "::1", "\u00e9", "a" * 300, "%00", "user:word@a", "1.2.3", "a%", "\u2100"],
    "port": ["", ":", ":80", ":99999", ":-1", ":http", ":\u0661"],
    "path": ["", "/", "/..", "/%2e%2e/", "/\u2603", "/{host}", "?a[]=%", "#["],
    "promql": ["sum({metric}{{{label}={text}}})", "{metric}[{text}]", "{text}", "vector(3)", "("],
    "metric": ["up", "\u00e9", "a:b", "{text}"],
    "label": ["a", "1", "\u2603", "__name__", "", "le"],
    "text": ['"a"', '"', "'\\x'", '"\\"', "\0", "{port}", "}}", "`"],
    "kafka": ["{host}{port}", "{host}:9092"],
    "annotation": ["3", "true", "\u0663", "-1", "1e9", "9" * 5000, "{text}", ""],
}


class Drawn:
    """Texts drawn from the grammar."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def __getitem__(self, name):
        rule = self._random.choice(GRAMMAR[name])
        return rule.format_map(self) if "{" in rule else rule

    def policy(self, policy_body, name):
        """A policy with some of its texts drawn."""
        made = body(policy_body, name)
        chance, spec = self._random.random, made["spec"]
        metrics = spec["metrics"] = {"queries": {"arrivalRate": self["promql"]}} if chance() < 0.5 else {}
        if chance() < 0.6:
            metrics["prometheus"] = {"url": self["url"]}
        if chance() < 0.3:
            kafka = {"bootstrapServers": [self["kafka"]], "topics": ["t"], "group": self["text"] or "g"}
            spec["signal"] = {"kafka": kafka}
        pause = f"rlscaler.io/paused-replicas-{self._random.choice(('gpu', 'cpu'))}"
        made["metadata"]["annotations"] = {pause: self["annotation"], "rlscaler.io/paused": self["annotation"]}
        made["metadata"]["labels"] = {self["label"]: self["text"]}
        return made


async def beside_an_innocent_one(engine, policy_body, number, at_once):  # noqa: F811
    """Take in so many drawn policies, and look whether the innocent one is decided at each turn."""
    drawn = Drawn(7)
    innocent = policy_body("innocent")
    engine.take_in(innocent)
    innocent = engine.registry.get(("ns", "innocent"))
    metadata = {"metadata": {"namespace": "ns", "name": "innocent-gpu"}}
    engine.cache.put_deployment(metadata | {"spec": {"replicas": 2}, "status": {"readyReplicas": 2}})
    for begin in range(0, number, at_once):
        crowd = [drawn.policy(policy_body, f"drawn-{i}") for i in range(begin, begin + at_once)]
        for made in crowd:
            engine.take_in(made)
        before = innocent.decision.state
        others = [policy for policy in engine.registry if policy.running and policy is not innocent]
        await turn(engine, innocent, *others)
        assert innocent.decision.state is not before, "it missed a tick"
        assert ready(innocent).reason not in ("InternalError", "ShareFailed", "InvalidSpec")
        assert all(policy.report.conditions for policy in others), "each policy says how it stands"
        for made in crowd:
            engine.forget(("ns", made["metadata"]["name"]), "")


async def test_texts_by_grammar_make_no_other_policy_miss_a_tick(engine, policy_body):  # noqa: F811
    await beside_an_innocent_one(engine, policy_body, 60, 20)


@pytest.mark.long
async def test_ten_thousand_policies_by_grammar_make_no_other_miss_a_tick(engine, policy_body):  # noqa: F811
    await beside_an_innocent_one(engine, policy_body, 10_000, 50)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_by_grammar_are_certificates_or_refused(seed):
    drawn = random.Random(seed)
    parts = [
        "-----BEGIN CERTIFICATE-----",
        "-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----",
        "\n",
        "MIIB",
        "\u00e9",
        "\0",
        "=",
    ]
    for _ in range(30):
        texts = {name: "".join(drawn.choices(parts, k=6)) for name in ("ca", "certificate", "private_key")}
        with pytest.raises(CredentialError):
            certificates_of(texts, "ns", "field")
