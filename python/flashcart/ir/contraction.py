"""The intermediate representation: a `Contraction`, and its canonical text.

A contraction is a polynomial evaluated on every row of an iteration space (edges, or nodes where nothing is indexed)
and on every channel, where any operand has channels:

    output[o][row_of(o), component] += coefficient * product of input components.

There are two channel axes, `c` and `d`. Products know `c` alone; a linear map takes an array over `c` to one over `d`
with matrices over both. An output is summed over the axes that it does not have.

It says what is computed, never how: `interpret.py` evaluates it, `differentiate.py` derives new contractions from it,
`plan.py` decides how to run it and the emitters turn plans into source text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol

FORMAT = "flashcart-contraction 3"
AXES = ("", "c", "d", "cd")


class Index(str, Enum):
    """How the rows of an operand follow from the row of the iteration space."""

    ROW = "row"  # one row per iteration row, in order
    SENDER = "sender"  # row senders[r]: gathered as an input, scattered (added) as an output
    RECEIVER = "receiver"  # row receivers[r], likewise
    SHARED = "shared"  # one row for all: broadcast as an input, summed as an output


@dataclass(frozen=True)
class Operand:
    """One array of a contraction: `[rows, components, *channel axes]`.

    `channels` names its channel axes: none, one, or both. `role` is the argument of the original multilinear form that
    the array stands for: a cotangent has the role of its output, a gradient that of its input. Every term of a
    derivative thus holds the same roles as the form, which is what lets one plan serve all orders. `ranks` are the
    ranks of the tensors that the components make up, in order; empty where they are single numbers (weights).
    """

    components: int
    index: Index
    channels: str
    role: int
    ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.channels not in AXES:
            raise ValueError(f"channels={self.channels!r}: expected one of {AXES}")

    def channel_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Sizes of its channel axes, by name in `sizes`."""
        return tuple(sizes[axis] for axis in self.channels)

    def rank_of(self, component: int) -> int:
        """Rank of the tensor that a component belongs to; 0 without ranks."""
        for rank in self.ranks:
            component -= 2 * rank + 1
            if component < 0:
                return rank
        return 0


@dataclass(frozen=True, order=True)
class Term:
    """`output[component] += coefficient * product(inputs[slot][component] for slot, component in factors)`."""

    output: tuple[int, int]  # (output slot, component)
    factors: tuple[tuple[int, int], ...]  # sorted (input slot, component); a repeated entry is a power
    coefficient: float


@dataclass(frozen=True)
class Contraction:
    """A program with several inputs and several outputs; immutable, hashable, printable.

    Attributes:
        inputs: the arrays read, by slot.
        outputs: the arrays produced, by slot.
        terms: the polynomial, sorted, no two with the same output component and factors.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        for term in self.terms:
            slot, component = term.output
            if not (0 <= slot < len(self.outputs) and 0 <= component < self.outputs[slot].components):
                raise ValueError(f"term {term} writes outside the outputs")
            for factor_slot, factor_component in term.factors:
                if not (
                    0 <= factor_slot < len(self.inputs) and 0 <= factor_component < self.inputs[factor_slot].components
                ):
                    raise ValueError(f"term {term} reads outside the inputs")

    @property
    def has_channels(self) -> bool:
        """Whether any operand has channels; then terms are evaluated once per channel."""
        return any(operand.channels for operand in self.inputs + self.outputs)

    @property
    def mixes_channels(self) -> bool:
        """Whether both channel axes occur: a linear map or one of its derivatives."""
        return any("d" in operand.channels for operand in self.inputs + self.outputs)

    @property
    def pivot_role(self) -> int:
        """The role of the output of the original form."""
        return max(operand.role for operand in self.inputs + self.outputs)

    @cached_property
    def text(self) -> str:
        """Canonical text: one operand or term per line; equal contractions have equal text."""
        lines = [FORMAT]
        for kind, operands in (("input", self.inputs), ("output", self.outputs)):
            for operand in operands:
                ranks = ".".join(map(str, operand.ranks)) or "-"
                axes = operand.channels or "-"
                lines.append(f"{kind} {operand.components} {operand.index.value} {axes} {operand.role} {ranks}")
        for term in self.terms:
            factors = " ".join(f"{slot}:{component}" for slot, component in term.factors)
            lines.append(f"{term.output[0]}:{term.output[1]} {term.coefficient!r} {factors}".rstrip())
        return "\n".join(lines) + "\n"

    @cached_property
    def key(self) -> str:
        """Content hash of the text: the name of this contraction everywhere."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.text


class Shaped(Protocol):
    """Anything with a shape: a numpy array, a tensor."""

    @property
    def shape(self) -> Sequence[int]:
        """Length of every dimension."""
        ...


def channel_sizes(operands: Iterable[Operand], arrays: Iterable[Shaped]) -> dict[str, int]:
    """Sizes of the channel axes, read off the arrays `[rows, components, *channel axes]`; 1 where none has the axis."""
    sizes = {"c": 1, "d": 1}
    for operand, array in zip(operands, arrays, strict=True):
        sizes.update(zip(operand.channels, array.shape[2:], strict=True))
    return sizes


def parse(text: str) -> Contraction:
    """Read the canonical text back; `parse(c.text) == c`.

    Raises:
        ValueError: the text is not a contraction of this format.
    """
    lines = text.splitlines()
    if not lines or lines[0] != FORMAT:
        raise ValueError(f"not a contraction: the first line is not {FORMAT!r}")
    operands: dict[str, list[Operand]] = {"input": [], "output": []}
    terms = []
    for line in lines[1:]:
        words = line.split()
        if words[0] in operands:
            components, index, channels, role, ranks = words[1:]
            numbers = () if ranks == "-" else tuple(map(int, ranks.split(".")))
            axes = "" if channels == "-" else channels
            operand = Operand(int(components), Index(index), axes, int(role), numbers)
            operands[words[0]].append(operand)
            continue
        factors = tuple(_pair(word) for word in words[2:])
        terms.append(Term(_pair(words[0]), factors, float(words[1])))
    return Contraction(tuple(operands["input"]), tuple(operands["output"]), tuple(terms))


def _pair(word: str) -> tuple[int, int]:
    slot, component = word.split(":")
    return int(slot), int(component)
