"""Plans of queries."""

from __future__ import annotations

from typing import Any

__all__ = ["Plan"]


class Plan(str):
    """The logical and the physical plan of a query. It is a text; notebooks show its operators in bold.

    Example:
        >>> plan = lake.sql("SELECT label FROM digits").explain()
        >>> isinstance(plan, str), plan.splitlines()[0]
        (True, 'logical plan')
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        from stoker._html import plan_html

        return plan_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # IPython in a terminal.
        printer.text(str(self))
