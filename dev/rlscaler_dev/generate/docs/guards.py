"""The page of the guards, from the table that the shield runs."""

from __future__ import annotations

from rlscaler_core.decision.guards import GUARDS
from rlscaler_dev.generate.docs.markdown import code, plain, table
from rlscaler_operator.state.status import flag_names

INTRODUCTION = """\
# Guards

What stands between the replicas that the actor proposes and those that are written. The guards run in this order,
each on what the one before it left. `status.lastDecision.guards` has the replicas after each one, and
`status.lastDecision.reasons` the reasons that are named here; [`rlscaler explain`](../decision-log.md) says what would
have come out without a guard. [The loop](../concepts.md) says where the proposal comes from, and
[behavior](../behavior.md) what its windows and rates are.

"""


def render() -> str:
    """The page as Markdown."""
    rows = [
        (code(guard.name), plain(guard.meaning), ", ".join(map(code, flag_names(guard.changes | guard.holds))))
        for guard in GUARDS
    ]
    return INTRODUCTION + table(["guard", "what it does", "reason"], rows) + "\n"
