"""Schedulers that are played beside each other: kube-scheduler's default, rules and trained networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.policies import DEFAULT_RULE, RULES_OF, Policy
from rlscaler_dev.exceptions import DevClusterError

DEFAULT = "default"
"""The contender that is kube-scheduler's own default profile."""


@dataclass(frozen=True)
class Contender:
    """One scheduler: without a policy kube-scheduler's default, else a rule of the policy or a network."""

    name: str
    policy: Policy | None = None
    rule: str | None = None
    models: Path | None = None
    """Folder of the network."""

    def options(self) -> list[str]:
        """Return the options of its suggestion server."""
        if self.policy is None:
            return []
        decider = ["--rule", self.policy, self.rule] if self.rule else ["--model-dir", str(self.models)]
        return ["--policy", self.policy, *decider]

    def check(self) -> None:
        """Raise DevClusterError for a network that the server could not load: its rule would be played in its name."""
        if self.policy is not None and self.models is not None:
            try:
                PlacementActor.load(self.models, self.policy)
            except ModelError as error:
                raise DevClusterError(f"--model-dir {error}") from error


def contenders(names: Sequence[str], folders: Sequence[Path] = ()) -> list[Contender]:
    """Return the default scheduler, then rules, then the networks of the folders for the policies that are played.

    A name is `default`, a policy (its default rule) or POLICY/RULE. Without names all rules of the policies that the
    folders have networks for are played, of EL without folders. Raises DevClusterError.
    """
    has = {policy: [folder for folder in folders if (folder / f"{policy}.onnx").is_file()] for policy in Policy}
    if empty := [str(folder) for folder in folders if not any(folder in several for several in has.values())]:
        raise DevClusterError(f"--model-dir {', '.join(empty)}: no network; name a folder of `scheduler train`")
    if not names:
        played = [policy for policy in Policy if has[policy]]
        names = (
            [DEFAULT, *(f"{policy}/{rule}" for policy in played for rule in RULES_OF[policy])]
            if played
            else [
                DEFAULT,
                Policy.EL,
            ]
        )
    rules = [_named(name) for name in dict.fromkeys(names)]
    wanted = {contender.policy for contender in rules}
    networks = [
        Contender(f"{policy} network {folder.name}", policy, models=folder)
        for policy in Policy
        if policy in wanted
        for folder in has[policy]
    ]
    if folders and not networks:
        have = ", ".join(policy for policy in Policy if has[policy])
        raise DevClusterError(f"--model-dir: has networks for {have} alone; name one of these with --contender")
    return [*sorted(rules, key=lambda contender: contender.policy is not None), *networks]


def _named(name: str) -> Contender:
    if name == DEFAULT:
        return Contender(DEFAULT)
    policy, _, rule = name.partition("/")
    if policy not in list(Policy):
        raise DevClusterError(f"--contender {name}: none of {DEFAULT}, {', '.join(Policy)}, nor POLICY/RULE")
    chosen = Policy(policy)
    if rule and rule not in RULES_OF[chosen]:
        raise DevClusterError(f"--contender {name}: {rule} is none of {chosen}: {', '.join(RULES_OF[chosen])}")
    return Contender(name, chosen, rule or DEFAULT_RULE[chosen])
