"""The magic ``%%stoker`` of IPython and Jupyter: cells of SQL."""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Callable
from typing import Any, Protocol

from stoker import _native
from stoker._errors import InvalidRequestError, StokerError
from stoker._lake import Lake, connect
from stoker._query import Query
from stoker._statement import Outcome

__all__ = ["Magic", "Shell"]

#: The beginning of a statement whose query gets a name.
ASSIGNMENT = re.compile(r"\s*(?P<name>\w+)\s*<<(?P<rest>.*)", re.DOTALL)

#: What to write.
USAGE = (
    "write %stoker connect URI or %stoker NAME_OF_A_LAKE first; then %%stoker, or %%stoker NAME <<, above a line of SQL"
)


class Shell(Protocol):
    """What the magic needs of IPython's shell.

    Attributes:
        user_ns: The variables of the user.
    """

    user_ns: dict[str, Any]

    def register_magic_function(self, func: Callable[..., Any], magic_kind: str, magic_name: str) -> None:
        """Adds a magic."""


class Magic:
    """Runs SQL over a lake.

    ``%stoker connect URI`` connects to a lake, and ``%stoker lake`` uses the lake of a variable. After that, a cell
    ``%%stoker`` has one query, whose first rows are shown, and ``%%stoker name <<`` gives the query a name instead.
    ``%stoker SELECT …`` does the same in a line. ``$name`` stands for the value of the variable ``name``: it is bound
    as a parameter, so that no value can become SQL. Statements that change the lake, such as ``CREATE INDEX``, are
    executed, and show what they did.
    """

    #: IPython would replace ``$name`` by text.
    _ipython_magic_no_var_expand = True

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._lake: Lake | None = None

    def __call__(self, line: str, cell: str | None = None) -> Lake | Query | Outcome | None:
        """Runs a line, or a cell with its first line.

        Raises:
            StokerError: Of any kind. IPython shows it as one line, without a traceback.
        """
        try:
            return self._run(line, cell)
        except StokerError as error:
            text = f"{error.kind}: {' '.join(str(error).split())}"
            # IPython asks exceptions for this method.
            error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]
            raise

    def _run(self, line: str, cell: str | None) -> Lake | Query | Outcome | None:
        if cell is not None:
            name, rest = _assigned(line)
            if rest.strip():
                raise InvalidRequestError(f"what follows %%stoker is not understood: {rest.strip():.60}; {USAGE}")
            return self._query(cell, name)
        words = line.split()
        if not words:
            if self._lake is None:
                raise InvalidRequestError(f"no lake is chosen: {USAGE}")
            return self._lake
        if words[0] == "connect":
            return self._connect(line)
        if len(words) == 1 and words[0].isidentifier():
            return self._use(words[0])
        name, rest = _assigned(line)
        return self._query(rest, name)

    def _connect(self, line: str) -> Lake:
        try:
            words = shlex.split(line)
        except ValueError as failed:
            raise InvalidRequestError(f"%stoker connect: {failed}") from None
        if len(words) != 2:
            raise InvalidRequestError(
                "write %stoker connect URI; for options, write lake = stoker.connect(…), and then %stoker lake"
            )
        self._lake = connect(words[1])
        return self._lake

    def _use(self, name: str) -> Lake:
        found = self._shell.user_ns.get(name)
        if not isinstance(found, Lake):
            what = "there is no variable of this name" if found is None else f"it is a {type(found).__name__}"
            raise InvalidRequestError(f"{name} is no lake, {what}; {USAGE}")
        self._lake = found
        return found

    def _query(self, sql: str, name: str | None) -> Query | Outcome | None:
        if self._lake is None:
            raise InvalidRequestError(f"no lake is chosen: {USAGE}")
        sql, names = _native.numbered_params(sql.strip())
        missing = [wanted for wanted in names if wanted not in self._shell.user_ns]
        if missing:
            raise InvalidRequestError(f"the query has ${missing[0]}, and there is no variable {missing[0]}")
        values = [self._shell.user_ns[wanted] for wanted in names]
        is_change = _native.is_change(sql)
        made: Query | Outcome = self._lake.execute(sql, values) if is_change else self._lake.sql(sql, values)
        if name is not None:
            self._shell.user_ns[name] = made
            return None
        return made._shown() if isinstance(made, Query) else made


def _assigned(line: str) -> tuple[str | None, str]:
    """Returns the name before ``<<``, and what follows it."""
    found = ASSIGNMENT.fullmatch(line)
    if found is None:
        return None, line
    name = found["name"]
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidRequestError(f"{name} is no name of a variable: write %%stoker NAME <<")
    return name, found["rest"]
