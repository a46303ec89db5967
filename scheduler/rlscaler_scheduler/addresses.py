"""Which node has an address: Prometheus names nodes by their addresses, and two nodes may have had the same one."""

from __future__ import annotations

from collections.abc import Iterable


class Addresses:
    """IP addresses and host names of nodes, as they were last written."""

    def __init__(self) -> None:
        self._names_at: dict[str, dict[str, None]] = {}
        """Address -> names of the nodes that have it, the last written at the end."""
        self._of: dict[str, tuple[str, ...]] = {}
        """Node name -> its addresses."""

    def put(self, name: str, addresses: Iterable[str]) -> None:
        """Note the addresses of a node in place of those that it had; none for one that is gone."""
        for address in self._of.pop(name, ()):
            names = self._names_at[address]
            names.pop(name)
            if not names:
                del self._names_at[address]
        if has := tuple(dict.fromkeys(addresses)):
            self._of[name] = has
        for address in has:
            self._names_at.setdefault(address, {})[name] = None

    def name_at(self, address: str) -> str | None:
        """The node that has the address, of several the last written; None where none has it."""
        return next(reversed(self._names_at.get(address, {})), None)
