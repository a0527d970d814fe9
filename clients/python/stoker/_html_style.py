"""How the HTML of notebooks looks: colours of light and dark themes, tables, and long texts that open."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["NULL", "framed", "quiet", "table", "text_html"]

#: The colours in a light and in a dark theme.
LIGHT = {
    "text": "#1f2328",
    "quiet": "#59636e",
    "back": "#ffffff",
    "line": "#d1d9e0",
    "band": "#f6f8fa",
    "mark": "#0969da",
}
DARK = {
    "text": "#e6edf3",
    "quiet": "#9198a1",
    "back": "#0d1117",
    "line": "#3d444d",
    "band": "#161b22",
    "mark": "#4493f8",
}

#: The themes: those of JupyterLab, of VS Code and of Colab say which they are; else the browser does.
LIGHT_THEMES = ['[data-jp-theme-light="true"]', ".vscode-light"]
DARK_THEMES = ['[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]']

#: The rules. They are more specific than those that JupyterLab has for all tables.
RULES = """
.stoker{color:var(--stoker-text);background:var(--stoker-back);padding:4px 6px;overflow-x:auto;
font-size:13px;line-height:1.4}
.stoker p{margin:2px 0}
.stoker small,.stoker .stoker-quiet{color:var(--stoker-quiet);font-weight:normal}
.stoker code,.stoker pre{color:var(--stoker-text);background:none;padding:0;font-size:12px}
.stoker pre{margin:4px 0;padding:6px 8px;background:var(--stoker-band);overflow-x:auto;white-space:pre}
.stoker .stoker-sql{font-family:monospace;font-size:12px}
.stoker .stoker-rows{border-collapse:collapse;margin:4px 0;table-layout:auto;border:none}
.stoker .stoker-rows th,.stoker .stoker-rows td{text-align:left;vertical-align:top;padding:3px 8px;max-width:32em;
white-space:normal;overflow-wrap:anywhere;border:none;border-bottom:1px solid var(--stoker-line);
color:var(--stoker-text)}
.stoker .stoker-rows thead th{background:var(--stoker-band);font-weight:600}
.stoker .stoker-rows tbody tr:nth-child(n){background:none}
.stoker .stoker-rows th.stoker-number,.stoker .stoker-rows td.stoker-number{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}
.stoker .stoker-text{white-space:pre-wrap}
.stoker .stoker-long{white-space:pre-wrap;overflow-wrap:anywhere;max-height:20em;overflow-y:auto}
.stoker .stoker-null{color:var(--stoker-quiet);font-style:italic}
.stoker details>summary{cursor:pointer}
.stoker svg{color:var(--stoker-mark);display:block}
.stoker img{display:inline-block;max-width:none;margin:0}
.stoker .stoker-bar{background:var(--stoker-mark);height:0.8em;margin-top:0.3em;min-width:1px}
.stoker .stoker-grid{display:grid;gap:8px;justify-content:start}
.stoker figure{margin:0;text-align:center;max-width:128px;overflow-wrap:anywhere}
"""

#: How NULL is shown.
NULL = '<span class="stoker-null">NULL</span>'
#: The maximum characters and lines of a text that is shown as a whole; a longer one opens.
NUM_CHARS = 120
NUM_LINES = 3
#: The maximum characters of a text that opens.
NUM_CHARS_MAX = 10_000


def _colours(colours: Mapping[str, str]) -> str:
    return ";".join(f"--stoker-{name}:{colour}" for name, colour in colours.items())


def _themed(themes: Sequence[str], colours: Mapping[str, str]) -> str:
    return ",".join(f"{theme} .stoker" for theme in themes) + f"{{{_colours(colours)}}}"


STYLE = "".join(
    [
        f".stoker{{{_colours(LIGHT)}}}",
        f"@media (prefers-color-scheme:dark){{.stoker{{{_colours(DARK)}}}}}",
        _themed(LIGHT_THEMES, LIGHT),
        _themed(DARK_THEMES, DARK),
        RULES.replace("\n", ""),
    ]
)


def framed(*parts: str) -> str:
    """Returns HTML with the style around it."""
    return f'<div class="stoker"><style>{STYLE}</style>{"".join(parts)}</div>'


def quiet(text: str) -> str:
    """Returns a small line of plain text."""
    return f"<p><small>{html.escape(text)}</small></p>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool]) -> str:
    """Returns a table.

    Args:
        heads: The HTML of the first line.
        rows: The HTML of the other cells.
        numbers: For each column, whether its values are numbers, which are aligned to the right.
    """
    classes = [' class="stoker-number"' if is_number else "" for is_number in numbers]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(classes, cells, strict=True)
        return "<tr>" + "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in pairs) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f'<table class="stoker-rows"><thead>{line("th", heads)}</thead><tbody>{body}</tbody></table>'


def text_html(text: str) -> str:
    """Returns a text, which opens if it is long."""
    if len(text) <= NUM_CHARS and text.count("\n") < NUM_LINES:
        return f'<span class="stoker-text">{html.escape(text)}</span>'
    begin = " ".join(text[:NUM_CHARS].split())
    whole = text if len(text) <= NUM_CHARS_MAX else f"{text[:NUM_CHARS_MAX]}… ({len(text):,} characters)"
    return (
        f"<details><summary>{html.escape(begin)}…</summary>"
        f'<div class="stoker-long">{html.escape(whole)}</div></details>'
    )
