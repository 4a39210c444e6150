"""Sphinx configuration. `make docs` builds the pages with warnings as errors.

The tables of configuration keys and of environment variables are written from the code at every build, so that they
cannot fall behind it.
"""

from __future__ import annotations

from pathlib import Path

from pygments.lexers.shell import BashLexer
from sphinx.highlighting import lexers

from flashcart import __version__
from flashcart.config import keys_table
from flashcart.environment import describe_variables

project = "FlashCart"
copyright = "The FlashCart developers"  # noqa: A001 (the name is Sphinx's)
release = version = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
nitpicky = True
html_theme = "furo"
html_title = f"FlashCart {release}"
lexers["lammps"] = BashLexer()


def variables_table() -> str:
    """Every environment variable as a Markdown table."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in describe_variables()]
    return "\n".join(lines) + "\n"


GENERATED = Path(__file__).parent / "_build" / "generated"
GENERATED.mkdir(parents=True, exist_ok=True)
(GENERATED / "keys.md").write_text(keys_table(), encoding="utf-8")
(GENERATED / "variables.md").write_text(variables_table(), encoding="utf-8")
