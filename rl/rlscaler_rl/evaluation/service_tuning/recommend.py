"""What changes of the spec are worth on the held-back part, and the file that makes them."""

from __future__ import annotations

from pathlib import Path

import yaml

from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.gate import judge
from rlscaler_rl.evaluation.rows import difference
from rlscaler_rl.evaluation.schema import Difference
from rlscaler_rl.evaluation.service_tuning import spec
from rlscaler_rl.evaluation.service_tuning.choice import Choice
from rlscaler_rl.evaluation.service_tuning.history import History
from rlscaler_rl.evaluation.service_tuning.rivals import GENERAL, GENERAL_SPEC, POLICY, POLICY_SPEC
from rlscaler_rl.evaluation.service_tuning.schema import Recommendation
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.training.files import write_atomically

FILE = "spec-patch.yaml"
RIVALS = {"hpa_tuned": "HPA, tuned for this service", "rule_tuned": "Forecast rule, tuned for it"}


def recommendation(
    board: Board, workload: str, choice: Choice, service: Service, history: History, *, publish: bool
) -> Recommendation:
    """The changes that the tune part chose, as the trial judges them: by whichever network is to run."""
    gain = choice.gain
    if not choice.found:
        why = "none was better than yours on the tune part" if gain is None else f"on the tune part J {shown(gain)}"
        return Recommendation(apply=False, reason=f"nothing to change: {why}", changes={}, tune=gain, worth={})
    worth = {
        POLICY: difference(board, workload, POLICY, POLICY_SPEC),
        GENERAL: difference(board, workload, GENERAL, GENERAL_SPEC),
        **{name: difference(board, workload, name, POLICY_SPEC) for name in RIVALS},
    }
    runs = POLICY if publish else GENERAL
    label = "the policy for this service" if publish else "the general policy, which stays"
    found = worth[runs]
    said = {"win": "better", "loss": "worse"}.get(found.verdict, "not shown to be better")
    _, together = judge([(label, worth[name]) for name, label in RIVALS.items()], smooth=history.smooth)
    return Recommendation(
        apply=found.verdict == "win",
        reason=f"with {label}, {said} than your spec on the held-back part: J {shown(found)}",
        changes=spec.patch(service, choice.found),
        tune=gain,
        worth=worth,
        together=f"publishing and changing the spec, against both tuned rivals: {together}",
    )


def shown(found: Difference) -> str:
    return f"{found.percent:+.1f} % [{found.low_percent:+.1f}, {found.high_percent:+.1f}]"


def patch_file(made: Recommendation, service: Service) -> str:
    """As `kubectl patch --type merge --patch-file` takes it."""
    name, namespace = service.name, service.namespace
    verdict = "apply" if made.apply else "do not apply"
    return (
        f"# Spec changes for RLScalingPolicy {namespace}/{name}: {verdict}\n"
        f"# {made.reason}\n"
        f"# kubectl patch rlsp {name} -n {namespace} --type merge --patch-file {FILE}\n{to_yaml(made)}"
    )


def to_yaml(made: Recommendation) -> str:
    return yaml.safe_dump(made.changes, sort_keys=False)


def write(made: Recommendation, service: Service, folder: Path) -> None:
    """Beside the report; an earlier file of the folder goes where nothing is recommended."""
    if made.changes:
        write_atomically(folder / FILE, patch_file(made, service))
    else:
        (folder / FILE).unlink(missing_ok=True)
