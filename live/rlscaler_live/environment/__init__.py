"""A service on a cluster as an environment to learn in, with the extra `train`.

env = KubernetesEnv(create_environment_config(namespace="workloads", prometheus_url="http://127.0.0.1:9090"))
"""

from rlscaler_live.environment.config import EnvironmentConfig, create_environment_config
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_live.environment.gym_env import KubernetesEnv

__all__ = ["EnvironmentConfig", "KubernetesEnv", "LiveEnvironmentError", "create_environment_config"]
