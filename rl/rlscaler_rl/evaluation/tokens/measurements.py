"""Load tests of a calibration as they are measured, in a file that a later run takes up after."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from pydantic import Field, ValidationError

from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.client import Sent
from rlscaler_rl.results.document import Document
from rlscaler_rl.training.files import write_atomically


class Measured(Document):
    """One load test, of a mix and a share as in `calibrate.LoadTest`."""

    mix: str
    share: float | None
    requests: list[tuple[float, int, int, float, float | None]] = Field(min_length=1)
    """Fields of `client.Sent`; None: an answer of one token."""

    @classmethod
    def of(cls, mix: str, share: float | None, sent: Sent) -> Self:
        """Return the load test of these requests."""
        return cls(mix=mix, share=share, requests=list(zip(*(column.tolist() for column in sent), strict=True)))

    @property
    def sent(self) -> Sent:
        """Return the requests as the client measured them."""
        at, prompt, answer, first, token = np.array(self.requests, np.float64).T
        return Sent(at, prompt.astype(np.int32), answer.astype(np.int32), first, token)


class Measurements(Document):
    """Load tests of a model in order, with the options that they depend on."""

    model: str
    url: str
    mixes: list[str]
    requests: int
    sequences: int
    tests: list[Measured]

    def write(self, path: Path) -> None:
        """Write the file into a folder, which is created where it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.json_text() + "\n")

    def resumed(self, path: Path) -> Measurements:
        """Return those of a file of the same options. Raises EvaluationError naming file, field and remedy."""
        try:
            past = Measurements.model_validate_json(path.read_bytes())
        except OSError as error:
            raise EvaluationError(f"{path}: {error.strerror}; leave out --resume") from error
        except ValidationError as error:
            where, why = error.errors()[0]["loc"], error.errors()[0]["msg"]
            raise EvaluationError(f"{': '.join(map(str, (path, *where)))}: {why}; leave out --resume") from error
        for name in ("model", "url", "mixes", "requests", "sequences"):
            before, now = getattr(past, name), getattr(self, name)
            if before != now:
                raise EvaluationError(f"{path}: {name} is {before}, not {now}; name the same, or leave out --resume")
        return past
