"""Patterns (RE2) of the names of a Deployment's pods.

The name of a pod is `<Deployment>-<hash of the ReplicaSet>-<suffix>`. The API server cuts the part before the suffix
after 58 characters (`maxNameLength` less `randomLength` in k8s.io/apiserver's storage/names). So the hash of a
Deployment with a name of more than 46 characters loses its end and the `-` after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SUFFIX = "-[4-9b-df]{1,10}-[a-z0-9]{5}"
"""Pattern behind the name of a Deployment in the whole name of a pod.

The hash of a template is a number of 32 bits whose digits are written in ten of the characters `RANDOM`
(`SafeEncodeString` in k8s.io/apimachinery's util/rand). So the pods of a Job `chat-batch`, or of a CronJob `chat` whose
Jobs end in the minutes since 1970 (they begin with 2 or 3 until 2046), are not those of the Deployment `chat`.
"""

WHOLE = 46
"""Longest name of a Deployment whose pods' names are never cut: 58 characters less two `-` and a hash of ten."""

CUT_AFTER = 58
SUFFIX_CHARACTERS = 5

LONGEST = CUT_AFTER - 1
"""Longest name of a Deployment that its pods' names contain, with the `-` that ends it."""

RANDOM = "[b-df-hj-np-tv-xz24-9]"
"""Characters of hashes and suffixes (`alphanums` in k8s.io/apimachinery's util/rand): no vowels, no 0, 1 and 3."""


OF_OTHERS = f"-(?:[0-9]+(?:-[0-9]+)?|{RANDOM}{{5,10}}|[4-9b-df]{{1,10}}-[a-z0-9]{{5}})"
"""Pattern behind the name of an object of another kind: numbers (StatefulSet, LeaderWorkerSet), or the hash of a
ReplicaSet, of a template or both (Rollout)."""


def told_apart(deployment: str) -> bool:
    """Return True where the names of a Deployment's pods contain its whole name."""
    return len(deployment) <= LONGEST


def literally(name: str) -> str:
    """Return the pattern of a Kubernetes name inside a PromQL string."""
    return name.replace(".", r"\\.")


def pods_of(deployments: Iterable[str], others: Iterable[str] = ()) -> str:
    """Return the pattern of the names of the pods of Deployments and of objects of other kinds.

    Deployments that are not told apart are left out.
    """
    names, of_others = sorted(filter(told_apart, deployments)), _others(others)
    cut = [_cut(literally(name), len(name)) for name in names if len(name) > WHOLE]
    whole = [f"({'|'.join(map(literally, names))}){SUFFIX}"] if names or not of_others else []
    return "|".join([*of_others, *whole, *cut])


def _others(names: Iterable[str]) -> list[str]:
    """Return the pattern of the pods of objects of other kinds; a list without it where there are none."""
    several = "|".join(map(literally, sorted(names, key=lambda name: (-len(name), name))))
    return [f"({several}){OF_OTHERS}"] if several else []


def begin_of_pods(names: Iterable[str]) -> str:
    """Return a pattern of the pods of Deployments and other objects, and of others whose names begin alike."""
    names = set(names)
    # Names that differ in their last word only, such as the pools of a policy, have one begin: Prometheus compiles the
    # pattern for each selector, which takes longer than to find the series.
    stems = Counter(name.rpartition("-")[0] for name in names)
    begins = {stem if stem and stems[stem] > 1 else name for name in names for stem in [name.rpartition("-")[0]]}
    return "|".join(f"{literally(begin)}-.+" for begin in sorted(begins))


def deployment_of(vector: str, deployments: Iterable[str], others: Iterable[str] = (), exactly: bool = False) -> str:
    """Return a PromQL vector with the label `deployment` on each element, from its label `pod`.

    `deployments` are the wanted ones: only a name that is cut has to be known. `others` are the wanted objects of other
    kinds; the label holds their names as well. `exactly` leaves the label out for pods of any other object.
    """
    deployments = set(deployments)
    long = sorted({name for name in deployments if told_apart(name) and len(name) > WHOLE})
    # A name of 57 characters leaves nothing of the hash: its pods look like whole names, so it has to be listed first.
    listed = [_cut(f"({literally(name)})", len(name)) for name in long if len(name) == LONGEST]
    by_length = [_cut(f"(.{{{n}}})", n) for n in sorted({len(name) for name in long}) if n < LONGEST]
    whole = "|".join(map(literally, sorted(filter(told_apart, deployments)))) if exactly else ".+"
    patterns = [*_others(others), *listed, *([f"({whole}){SUFFIX}"] if whole else []), *by_length]
    groups = "".join(f"${{{i}}}" for i in range(1, len(patterns) + 1))
    return f'label_replace({vector}, "deployment", "{groups}", "pod", "{"|".join(patterns)}")'


def _cut(name: str, characters: int) -> str:
    return f"{name}-{RANDOM}{{{CUT_AFTER + SUFFIX_CHARACTERS - characters - 1}}}"
