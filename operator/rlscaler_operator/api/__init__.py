"""RLScalingPolicy v1alpha1: the models that the CRD is generated from, and their use at the edge."""

from rlscaler_operator.api.base import GROUP, KIND, PLURAL, VERSION
from rlscaler_operator.api.conditions import find_condition, is_true, remove_condition, set_condition
from rlscaler_operator.api.convert import to_params
from rlscaler_operator.api.exceptions import InvalidPolicy, Problem
from rlscaler_operator.api.policy import RLScalingPolicy, parse
from rlscaler_operator.api.spec import Spec
from rlscaler_operator.api.status import Condition, Status

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
