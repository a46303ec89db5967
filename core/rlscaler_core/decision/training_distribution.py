"""The distribution of the observations in training, and which observations are out of it."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlscaler_core.decision.types import OBSERVATIONS, Bool, Float, Observation, SignalState

N = len(OBSERVATIONS)
Row = Annotated[tuple[float, ...], Field(min_length=N, max_length=N)]


class TrainingDistribution(BaseModel):
    """Mean and inverse covariance of the fed observations of training, and their greatest distance from the mean.

    The distance is Mahalanobis': numbers that are each within their range and never occur together are far. An unknown
    observation counts as the mean, since it is fed as a neutral value and carries no information.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    mean: Row
    precision: Annotated[tuple[Row, ...], Field(min_length=N, max_length=N)]
    """The inverse of the covariance, symmetric."""
    limit: float = Field(gt=0)
    """The distance from which on an observation is out of distribution."""

    @model_validator(mode="after")
    def _symmetric(self) -> Self:
        matrix = np.array(self.precision)
        if not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix).min() <= 0:
            raise ValueError("precision is no inverse of a covariance: it must be symmetric and positive definite")
        return self

    @classmethod
    def of(cls, fed: Float, margin: float, ridge: float = 1e-3) -> Self:
        """Measure fed observations (M, 10); `limit` is `margin` times the longest distance among them.

        `ridge` is added to every variance: a number that never moved in training may move by a few hundredths.
        """
        mean = fed.mean(axis=0)
        precision = np.linalg.inv(np.cov(fed, rowvar=False) + ridge * np.eye(N))
        precision = (precision + precision.T) / 2
        longest = float(_distance(fed - mean, precision).max())
        return cls(mean=tuple(mean.tolist()), precision=tuple(map(tuple, precision.tolist())), limit=margin * longest)

    def distance(self, observation: Observation) -> Float:
        """Return the distance (N,) from the mean of training, in standard deviations."""
        known = observation.status == SignalState.KNOWN
        return _distance(np.where(known, observation.fed - np.array(self.mean), 0.0), np.array(self.precision))

    def mask(self, observation: Observation) -> Bool:
        """Return where (N,) an observation is out of distribution."""
        far: Bool = self.distance(observation) > self.limit
        return far


def _distance(deviation: Float, precision: Float) -> Float:
    # Not by BLAS: a row's result must not depend on the rows beside it.
    square = np.einsum("ni,ij,nj->n", deviation, precision, deviation, optimize=False)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)), np.float64)
