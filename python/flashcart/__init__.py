"""FlashCart: an equivariant message-passing interatomic potential on irreducible Cartesian tensors.

Importing the package loads nothing heavy: torch and sympy come with the first use of what needs them.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__", "load_model"]


def __getattr__(name: str) -> object:
    """Resolve `flashcart.load_model` on first use, so that `import flashcart` stays light (PEP 562)."""
    if name == "load_model":
        from flashcart.deploy import load_model

        return load_model
    raise AttributeError(f"module 'flashcart' has no attribute {name!r}")
