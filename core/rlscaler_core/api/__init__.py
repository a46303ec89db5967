"""RLScalingPolicy v1alpha1: the models that the CRD is generated from, and their use at the edge."""

from rlscaler_core.api.base import GROUP, KIND, PLURAL, VERSION
from rlscaler_core.api.conditions import find_condition, is_true, remove_condition, set_condition
from rlscaler_core.api.convert import to_params
from rlscaler_core.api.exceptions import InvalidPolicy, Problem
from rlscaler_core.api.policy import RLScalingPolicy, parse
from rlscaler_core.api.spec import Spec
from rlscaler_core.api.status import Condition, Status

__all__ = [
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "Condition",
    "InvalidPolicy",
    "Problem",
    "RLScalingPolicy",
    "Spec",
    "Status",
    "find_condition",
    "is_true",
    "parse",
    "remove_condition",
    "set_condition",
    "to_params",
]
