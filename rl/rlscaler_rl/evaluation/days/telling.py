"""Progress of commands that take minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


def tell(console: Console, status: Status, text: str) -> None:
    """Show one step: beside the spinner on a terminal, else on a line of its own."""
    if console.is_terminal:
        status.update(text)
    else:
        console.print(text)
