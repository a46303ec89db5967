"""One token service under its policy, beside KEDA and WVA on the same load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlscaler_core.decision.types import GPU
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.tokens.compare import played, row_of, tuned
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES, Entry, network
from rlscaler_rl.evaluation.tokens.load import refusals_of
from rlscaler_rl.evaluation.tokens.own import LoadOf, OwnService
from rlscaler_rl.evaluation.tokens.recorded import half_of
from rlscaler_rl.evaluation.tokens.result import Comparison
from rlscaler_rl.results.document import Progress
from rlscaler_rl.simulation.scenario import HOURS_PER_MONTH
from rlscaler_rl.simulation.tokens.servers import Server

RIVALS = ("waiting", "in_flight", "kv", "backlog", "wva")


def simulated(
    path: Path, load: LoadOf, server: Server, tell: Progress, trials: int = 0, model: Loaded | None = None
) -> Comparison:
    """Play a policy of a token service by its own objectives on a load, beside KEDA and WVA.

    :param trials: settings that are tried for each of them on the earlier half of the load, so that all are played on
        the later one; 0: as guides set them up, on all of it.
    :param model: a network that acts for the policy; None: the forecast rule.

    Raises EvaluationError naming the file, the field and the remedy.
    """
    tell("load tests")
    service = OwnService.read(path, load, server)
    params = service.params
    if model is not None and (outside := model.actor.manifest.outside(params)[1][0]):
        # The rule would act for it.
        raise EvaluationError(
            f"{path}: the network of --model was not trained for this: {outside}; change the policy, or leave --model "
            "out, and the forecast rule acts"
        )
    whole = service.load
    past, later = whole, whole
    if trials:
        half = half_of(whole.label, whole.seconds)
        past, later = whole.between(0, half), whole.between(half, 2 * half)
    own = replace(ENTRIES[0] if model is None else network(model), learns=bool(params.learns_capacity[0]))
    entries: list[Entry] = [own, *(entry for entry in ENTRIES if entry.tunable.name in RIVALS)]
    results = []
    with refusals_of(server):
        judged = service.world([later])
        for entry in entries:
            tell(entry.tunable.label)
            rival = trials and entry is not own
            point = tuned(entry, service.world([past]), trials) if rival else entry.tunable.default
            mine = params if entry is own else None
            results.append((entry, point, played(entry, [point], judged, mine)))
    rows = [row_of(*each, results[0][2], judged.seconds) for each in results]
    names = [f"policy {service.name}", *([] if model is None else [own.tunable.label])]
    rows[0] = rows[0].model_copy(update={"label": ", ".join(names)})
    price = float(params.cost_per_hour[0, GPU])
    return Comparison(
        services=1,
        servers=[server.label],
        load=whole.label,
        seconds=judged.seconds,
        trials=trials,
        seed=0,
        rows=[row.model_copy(update={"cost_per_month": HOURS_PER_MONTH * row.replicas * price}) for row in rows],
    )
