"""Where the compiled LAMMPS plugin lies. Imported by every start of LAMMPS: standard library only."""

from __future__ import annotations

from pathlib import Path

PLUGIN_NAME = "flashcartplugin.so"


def plugin_path() -> Path | None:
    """Return the file for LAMMPS's `plugin load`, or None where the package was installed without the plugin."""
    # Not __file__: an editable installation keeps the compiled files in another folder of this package's path.
    for folder in __path__:
        path = Path(folder) / PLUGIN_NAME
        if path.is_file():
            return path.resolve()
    return None


def plugin_directory() -> str:
    """Return the folder that LAMMPS loads plugins from (its entry-point group `lammps.plugins`), built or not."""
    path = plugin_path()
    return str(path.parent if path else Path(__file__).resolve().parent)
