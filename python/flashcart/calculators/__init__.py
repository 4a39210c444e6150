"""Interfaces to simulation programs: the ASE calculator, and the Python side of the LAMMPS plugin.

Nothing is imported before it is used: LAMMPS does not load ASE.
"""

from __future__ import annotations

__all__ = ["FlashCartCalculator"]


def __getattr__(name: str) -> object:
    """Resolve `flashcart.calculators.FlashCartCalculator` on first use (PEP 562)."""
    if name == "FlashCartCalculator":
        from flashcart.calculators.ase import FlashCartCalculator

        return FlashCartCalculator
    raise AttributeError(f"module 'flashcart.calculators' has no attribute {name!r}")
