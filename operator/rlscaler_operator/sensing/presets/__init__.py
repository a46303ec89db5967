"""Whose series are read: one row for each server, gateway or proxy that is known.

The first row, without a name, is of the series that services of this project export (docs/metrics.md). A user names
another one in `spec.metrics.preset`.
"""

from rlscaler_operator.sensing.presets.front_doors import FRONT_DOORS
from rlscaler_operator.sensing.presets.servers import OWN_SERIES, SERVERS
from rlscaler_operator.sensing.presets.table import ByLabels, ByName, ByPods, Histogram, Preset, Tokens, Utilization

PRESETS: dict[str, Preset] = {"": OWN_SERIES, **SERVERS, **FRONT_DOORS}
"""Presets by their names in the spec; the empty name stands for none."""

__all__ = ["PRESETS", "SERVERS", "ByLabels", "ByName", "ByPods", "Histogram", "Preset", "Tokens", "Utilization"]
