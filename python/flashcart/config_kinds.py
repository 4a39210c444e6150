"""Kinds of values that a configuration key can hold.

A kind takes a value as YAML gives it and returns the checked value of the configuration; a wrong one raises ValueError
with no text of its own, since the reader writes the sentence from the key, the value and `allowed`. Reads no files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flashcart.device import ALLOWED_DEVICES, is_device_name

_YAML_1_1_WORDS = {"yes": True, "on": True, "no": False, "off": False}
STRESS_COMPONENTS = ("xx", "yy", "zz", "yz", "xz", "xy")


class Kind(Protocol):
    """One kind of value: what is allowed, and the conversion."""

    @property
    def allowed(self) -> str:
        """Say what is allowed, to stand after 'allowed:'."""
        ...

    def convert(self, value: Any, folder: Path) -> Any:
        """Return the checked value; relative paths start in `folder`. Raises ValueError."""
        ...


@dataclass(frozen=True)
class Boolean:
    """true or false, and the words that YAML 1.1 also reads as such."""

    allowed: str = "true or false"

    def convert(self, value: Any, folder: Path) -> bool:
        """Return the boolean."""
        value = _YAML_1_1_WORDS.get(value.lower(), value) if isinstance(value, str) else value
        return bool(_require(value, isinstance(value, bool)))


@dataclass(frozen=True)
class Integer:
    """An integer of at least `minimum`."""

    minimum: int

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        return f"an integer >= {self.minimum}"

    def convert(self, value: Any, folder: Path) -> int:
        """Return the integer."""
        good = isinstance(value, int) and not isinstance(value, bool) and value >= self.minimum
        return int(_require(value, good))


@dataclass(frozen=True)
class Number:
    """A finite number, at least `minimum` or above `above`, and at most `maximum` or below `below`."""

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        bounds = {">=": self.minimum, ">": self.above, "<=": self.maximum, "<": self.below}
        return "a number " + " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)

    def convert(self, value: Any, folder: Path) -> float:
        """Return the number."""
        number = float(_require(value, isinstance(value, int | float) and not isinstance(value, bool)))
        good = (
            math.isfinite(number)
            and (self.minimum is None or number >= self.minimum)
            and (self.above is None or number > self.above)
            and (self.maximum is None or number <= self.maximum)
            and (self.below is None or number < self.below)
        )
        return float(_require(number, good))


@dataclass(frozen=True)
class AnyNumber(Number):
    """Any finite number."""

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        return "a finite number"


@dataclass(frozen=True)
class Text:
    """A word or a sentence."""

    allowed: str = "text"

    def convert(self, value: Any, folder: Path) -> str:
        """Return the text."""
        return str(_require(value, isinstance(value, str) and value.strip() != ""))


@dataclass(frozen=True)
class Choice:
    """One of several words; `aliases` maps other accepted values to them."""

    words: tuple[str, ...]
    aliases: tuple[tuple[Any, str], ...] = ()

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        return ", ".join(self.words)

    def convert(self, value: Any, folder: Path) -> str:
        """Return the word."""
        for alias, word in self.aliases:
            if value == alias and type(value) is type(alias):
                return word
        return str(_require(value, isinstance(value, str) and value in self.words))


@dataclass(frozen=True)
class Only:
    """The one value that is supported so far."""

    value: Any

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        return f"{to_word(self.value)} (other values are not supported)"

    def convert(self, value: Any, folder: Path) -> Any:
        """Return the one value."""
        same_type = isinstance(value, bool) == isinstance(self.value, bool)
        return type(self.value)(_require(value, same_type and value == self.value))


@dataclass(frozen=True)
class FilePath:
    """Path of a file or folder; `~` at its start is the home folder."""

    allowed: str = "a path"

    def convert(self, value: Any, folder: Path) -> Path:
        """Return the absolute path."""
        text = str(_require(value, isinstance(value, str | Path) and str(value).strip() != ""))
        return (folder / Path(text).expanduser()).absolute()


@dataclass(frozen=True)
class DeviceName:
    """A device name; whether the device exists is asked later."""

    allowed: str = ALLOWED_DEVICES

    def convert(self, value: Any, folder: Path) -> str:
        """Return the name."""
        return str(_require(value, is_device_name(value)))


@dataclass(frozen=True)
class Devices:
    """Lightning Fabric's `devices`."""

    allowed: str = "auto, a number of devices, or a list of device numbers"

    def convert(self, value: Any, folder: Path) -> str | int | tuple[int, ...]:
        """Return the word, the number or the numbers."""
        if isinstance(value, list | tuple):
            return tuple(Integer(0).convert(_require(item, bool(value)), folder) for item in value)
        return "auto" if value == "auto" else Integer(1).convert(value, folder)


@dataclass(frozen=True)
class ListOf:
    """A list of at least `n_min` values of one kind; `distinct` forbids repetition."""

    kind: Kind
    n_min: int = 1
    distinct: bool = False

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        return f"a list{' without repetition' if self.distinct else ''}, each entry {self.kind.allowed}"

    def convert(self, value: Any, folder: Path) -> tuple[Any, ...]:
        """Return the values as a tuple."""
        _require(value, isinstance(value, list | tuple) and len(value) >= self.n_min)
        values = tuple(self.kind.convert(item, folder) for item in value)
        return tuple(_require(values, not self.distinct or len(set(values)) == len(values)))


@dataclass(frozen=True)
class MappingOf:
    """A mapping from text to values of one kind."""

    kind: Kind

    @property
    def allowed(self) -> str:
        """Say what is allowed."""
        return f"a mapping of names, each value {self.kind.allowed}"

    def convert(self, value: Any, folder: Path) -> dict[str, Any]:
        """Return the mapping with checked values."""
        _require(value, isinstance(value, Mapping) and len(value) > 0 and all(isinstance(key, str) for key in value))
        return {key: self.kind.convert(item, folder) for key, item in value.items()}


@dataclass(frozen=True)
class StressOrder:
    """The six stress components in some order, in one text or as a list."""

    allowed: str = f"the six components {' '.join(STRESS_COMPONENTS)} in the order of the data"

    def convert(self, value: Any, folder: Path) -> str:
        """Return the order as six words; yx, zx and zy are accepted for xy, xz and yz."""
        words = value.split() if isinstance(value, str) else value
        _require(words, isinstance(words, list | tuple) and all(isinstance(word, str) for word in words))
        ordered = ["".join(sorted(word)) for word in words]
        return " ".join(_require(ordered, sorted(ordered) == sorted(STRESS_COMPONENTS)))


def to_word(value: Any) -> str:
    """Write a value as a user would in YAML."""
    if value is None:
        return "~"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(to_word(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _require(value: Any, condition: bool) -> Any:
    """Return `value` where the condition holds; raise ValueError otherwise."""
    if not condition:
        raise ValueError
    return value
