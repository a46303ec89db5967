"""What can go wrong in the simulator."""


class SimulationError(Exception):
    """Base of the simulator's errors."""


class ScenarioError(SimulationError, ValueError):
    """A scenario that cannot be simulated; the message names the field and the remedy."""


class LedgerError(SimulationError, AssertionError):
    """A meter contradicts the others; every figure of the run is void. The message names the invariant."""
