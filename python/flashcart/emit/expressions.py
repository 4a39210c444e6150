"""Polynomials as statements: nested sums with common parts computed once.

Terms of one output component are nested by their factors, outermost first: sum over w of w * (sum over x of x * (...)).
Equal nested sums, of whatever output, get one variable. With channel-free factors innermost that is the edge matrix
shared by all channels, and first derivatives share their inner sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

Factor = tuple[int, int]  # (input slot, component)


class Expressions:
    """Collects statements `name = expression` in the order in which they can run.

    Args:
        name_of: variable that holds an input component.
        order: sorting key of factors, outermost first.
        prefix: of the names of the statements.
    """

    def __init__(
        self, name_of: Callable[[Factor], str], order: Callable[[Factor], tuple[int, ...]], prefix: str = "t"
    ) -> None:
        self._name_of, self._order, self._prefix = name_of, order, prefix
        self._known: dict[tuple[tuple[str, str], ...], str] = {}
        self.statements: list[str] = []

    def add(self, terms: Sequence[tuple[float, Sequence[Factor]]]) -> str:
        """Return a variable or literal that holds the sum of coefficient * factors."""
        return self._nested([(value, tuple(sorted(factors, key=self._order))) for value, factors in terms])

    def _nested(self, terms: Sequence[tuple[float, tuple[Factor, ...]]]) -> str:
        constant, groups = 0.0, defaultdict(list)
        for value, factors in terms:
            if factors:
                groups[factors[0]].append((value, factors[1:]))
            else:
                constant += value
        parts = [(self._name_of(first), self._nested(rest)) for first, rest in groups.items()]
        if not parts:
            return repr(constant)
        if constant:
            parts.append((repr(constant), "1.0"))
        if len(parts) == 1 and parts[0][1] == "1.0":
            return parts[0][0]
        key = tuple(parts)
        if key not in self._known:
            self._known[key] = f"{self._prefix}{len(self._known)}"
            text = " + ".join(left if right == "1.0" else f"{left} * {right}" for left, right in parts)
            self.statements.append(f"{self._known[key]} = {text}")
        return self._known[key]
