"""Small extended XYZ texts for the tests of this folder."""

from __future__ import annotations

WATER = "0.0 0.0 0.1", "0.0 0.76 -0.48", "0.0 -0.76 -0.48"
FORCES = "0.1 0.0 0.2", "0.0 0.1 -0.1", "-0.1 -0.1 -0.1"
CUBE = 'Lattice="10 0 0 0 10 0 0 0 10" pbc="T T T"'


def water(
    info: str = "REF_energy=-14.5", *, forces: str | None = "REF_forces", cell: str = "", symbols: str = "O H H"
) -> str:
    """Return a frame of one water molecule with the given keys."""
    properties = "Properties=species:S:1:pos:R:3" + (f":{forces}:R:3" if forces else "")
    rows = []
    for symbol, position, force in zip(symbols.split(), WATER, FORCES, strict=True):
        rows.append(f"{symbol} {position} {force}" if forces else f"{symbol} {position}")
    return "\n".join(["3", f"{cell} {properties} {info}".strip(), *rows]) + "\n"


def free_atom(symbol: str, energy: float) -> str:
    """Return a frame of one atom without forces, as such frames often are."""
    return f"1\nProperties=species:S:1:pos:R:3 REF_energy={energy}\n{symbol} 0 0 0\n"
