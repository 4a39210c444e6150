"""Building blocks of the model; the tensor library that users import."""

from flashcart.nn.expansion import CartesianExpansion
from flashcart.nn.mixing import EquivariantLinear
from flashcart.nn.product import TensorProduct

__all__ = ["CartesianExpansion", "EquivariantLinear", "TensorProduct"]
