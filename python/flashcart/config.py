"""A YAML file and `key=value` overrides, read into a frozen `Config`.

Takes a path and texts, returns checked values with absolute paths. What a value means for a run, and whether files
exist, is not looked at here. Imports neither torch nor numpy.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from flashcart.config_keys import MODEL_KEYS, Config, Loss, LossTerm, to_plain
from flashcart.config_kinds import to_word
from flashcart.errors import ConfigError

__all__ = ["MODEL_KEYS", "Config", "LossTerm", "describe_keys", "keys_table", "load_config", "load_keys", "read_yaml"]

Keys = TypeVar("Keys", bound=Config)


@dataclass(frozen=True)
class _Entry:
    """A value as written, the folder that relative paths in it start from, and where it was written."""

    value: Any
    folder: Path
    source: str


def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration that a YAML file and `key=value` overrides give, the latter winning.

    Relative paths start in the YAML's folder, in overrides in the working folder. Nested keys are dotted:
    train_loss.weighted_sum.0.weight=2. Raises ConfigError for a file that cannot be read, an unknown key, a value of
    the wrong type or out of range, and keys that contradict each other.
    """
    return load_keys(Config, path, overrides)


def load_keys(kind: type[Keys], path: str | Path | None = None, overrides: Sequence[str] = ()) -> Keys:
    """Return the same for a configuration with keys of its own besides, `kind`."""
    known = {entry.name: entry for entry in fields(kind)}
    entries: dict[str, _Entry] = {}
    if path is not None:
        folder, source = Path(path).absolute().parent, f"in {path}"
        for name, value in read_yaml(path).items():
            _check_known(name, known, source)
            entries[name] = _Entry(value, folder, source)
    for override in overrides:
        _apply_override(entries, override, known)
    config = kind(**{name: _convert(known[name], entry) for name, entry in entries.items()})
    _check_combinations(config)
    return config


def read_yaml(path: str | Path) -> dict[Any, Any]:
    """Return the mapping at the top of a YAML file; raise ConfigError with line and column where it is malformed."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a configuration file ({error}).") from None
    content = _parse_yaml(text, str(path))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected lines of the form 'key: value', got {to_word(content)!r}.")
    return content


def describe_keys(kind: type[Config] = Config) -> str:
    """Return every key with default, allowed values and meaning, for --help."""
    lines: list[str] = []
    for entry in fields(kind):
        if entry.metadata["group"]:
            lines.append(f"\n{entry.metadata['group']}:")
        default = f"default {_default_text(entry)}"
        lines += [f"  {entry.name}: {entry.metadata['meaning']}", f"      {_allowed(entry)}; {default}"]
    return "\n".join(lines).lstrip("\n") + "\n"


def keys_table() -> str:
    """Return every key as a Markdown table, for the documentation."""
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for entry in fields(Config):
        lines.append(f"| `{entry.name}` | {_default_text(entry)} | {_allowed(entry)} | {entry.metadata['meaning']} |")
    return "\n".join(lines) + "\n"


def _default_text(entry: Field[Any]) -> str:
    if not isinstance(entry.metadata["kind"], Loss):
        return to_word(entry.default)
    terms: list[LossTerm] = list(entry.default)  # type: ignore[arg-type]
    texts = [
        f"{term.weight:g} x {term.property} {term.reduce} {term.normalization}"
        + (f" delta {term.delta:g}" if term.reduce.startswith("huber") else "")
        for term in terms
    ]
    return (" + " if entry.metadata["kind"].summed else ", ").join(texts)


def _optional(entry: Field[Any]) -> bool:
    return str(entry.type).endswith("| None")


def _allowed(entry: Field[Any]) -> str:
    return str(entry.metadata["kind"].allowed) + (", or ~" if _optional(entry) else "")


def _apply_override(entries: dict[str, _Entry], override: str, known: Mapping[str, Field[Any]]) -> None:
    """Put the value of one `key=value` or `key.name.0=value` into `entries`."""
    dotted, equals, text = override.partition("=")
    if not equals or not dotted.strip():
        raise ConfigError(f"{override!r}: expected key=value.")
    source = f"in the override {override!r}"
    name, *steps = dotted.strip().split(".")
    _check_known(name, known, source)
    value = _parse_yaml(text, f"override {override!r}")
    if not steps:
        entries[name] = _Entry(value, Path.cwd(), source)
        return
    default = _Entry(to_plain(known[name].default, known[name].metadata["kind"]), Path.cwd(), source)
    before = entries.get(name, default)
    root = {name: copy.deepcopy(before.value)}
    _set_nested(root, [name, *steps], value, source)
    entries[name] = _Entry(root[name], before.folder, source)


def _set_nested(root: dict[str, Any], steps: Sequence[str], value: Any, source: str) -> None:
    """Walk `steps` through mappings and lists of `root` and set the last one; an unset mapping on the way is made."""
    place: Any = root
    for depth, step in enumerate(steps):
        here = ".".join(steps[:depth])
        position: Any = step
        if isinstance(place, list):
            if not step.isdecimal() or int(step) >= len(place):
                raise ConfigError(f"{here}.{step}: {here} is a list with entries 0 to {len(place) - 1} {source}.")
            position = int(step)
        elif not isinstance(place, dict):
            raise ConfigError(f"{here}.{step}: {here} is {to_word(place)} and holds no {step} {source}.")
        if depth == len(steps) - 1:
            place[position] = value
            return
        if isinstance(place, dict) and place.get(position) is None:
            place[position] = {}
        place = place[position]


def _check_known(name: Any, known: Mapping[str, Any], source: str, inside: str = "") -> None:
    if name in known:
        return
    nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f", did you mean {inside}{nearest[0]}?" if nearest else "."
    raise ConfigError(f"{inside}{to_word(name)}: unknown key {source}{hint}")


def _convert(entry: Field[Any], written: _Entry) -> Any:
    """Return the checked value of one key; raise ConfigError with key, value and what is allowed."""
    kind = entry.metadata["kind"]
    if written.value is None and _optional(entry):
        return None
    if isinstance(kind, Loss):
        return _convert_loss(entry.name, written)
    try:
        return kind.convert(written.value, written.folder)
    except ValueError:
        message = f"{entry.name}: got {_shown(written.value)} {written.source}, allowed: {_allowed(entry)}."
        raise ConfigError(message) from None


def _convert_loss(name: str, written: _Entry) -> tuple[LossTerm, ...]:
    """Return the terms of a loss that is one term, a list of terms, or a list under weighted_sum."""
    value, path = written.value, name
    if isinstance(value, Mapping) and "weighted_sum" in value:
        if len(value) > 1:
            other = next(key for key in value if key != "weighted_sum")
            raise ConfigError(f"{name}.{other}: stands beside weighted_sum {written.source}; put it into its terms.")
        value, path = value["weighted_sum"], f"{name}.weighted_sum"
    if isinstance(value, Mapping):
        return (_convert_term(path, value, written),)
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{path}: got {_shown(value)} {written.source}, allowed: {Loss().allowed}.")
    return tuple(_convert_term(f"{path}.{number}", term, written) for number, term in enumerate(value))


def _convert_term(path: str, value: Any, written: _Entry) -> LossTerm:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: got {_shown(value)} {written.source}, allowed: {Loss().allowed}.")
    known = {entry.name: entry for entry in fields(LossTerm)}
    for name in value:
        _check_known(name, known, written.source, inside=f"{path}.")
    converted: dict[str, Any] = {}
    for name, entry in known.items():
        if name not in value and entry.default is None:
            raise ConfigError(f"{path}.{name}: missing {written.source}, allowed: {entry.metadata['kind'].allowed}.")
        if name in value:
            converted[name] = _convert(entry, _Entry(value[name], written.folder, f"for {path} {written.source}"))
    return LossTerm(**converted)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else to_word(value)


def _check_combinations(config: Config) -> None:
    """Refuse keys that contradict each other; what the model keys mean together is checked by the model."""
    if config.valid_path is not None and config.valid_fraction is not None:
        raise ConfigError("valid_fraction: set together with valid_path; give one of the two.")
    if config.split_key is not None and config.valid_fraction is None:
        raise ConfigError("split_key: says how valid_fraction splits, but valid_fraction is not set.")
    if config.r_min >= config.r_max:
        raise ConfigError(f"r_min: got {config.r_min:g}, allowed: a number below r_max = {config.r_max:g}.")
    if config.atomic_shifts is not None:
        if config.isolated_atom_energies is not None:
            raise ConfigError("atomic_shifts: set together with isolated_atom_energies; give one of the two.")
        if config.elements is not None and len(config.atomic_shifts) != len(config.elements):
            n_shifts, n_elements = len(config.atomic_shifts), len(config.elements)
            raise ConfigError(f"atomic_shifts: got {n_shifts} numbers, allowed: one for each of {n_elements} elements.")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML 1.2 scalars (5e-3 is a number; No is text, not false) and no key twice in one mapping."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (the name and form are PyYAML's)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that stands twice, then build the mapping."""
        seen = set()
        for key_node, _ in node.value:
            text = (key_node.tag, str(key_node.value))
            if text in seen:
                problem = f"the key {key_node.value} stands here a second time"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(text)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _add_resolver(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})$"), list(first))


_add_resolver("null", r"~|null|Null|NULL|", "~nN\0")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"$"), [""])
_add_resolver("bool", r"true|True|TRUE|false|False|FALSE", "tTfF")
_add_resolver("int", r"[-+]?[0-9]+", "-+0123456789")
_add_resolver("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789.")
_add_resolver("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+.")
_add_resolver("merge", r"<<", "<")
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))


def _parse_yaml(text: str, where: str) -> Any:
    """Return the value of a YAML text; raise ConfigError with line and column."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where}{place}: {error.problem or error.context}.") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{where}: not YAML ({error}).") from None


if __name__ == "__main__":  # python -m flashcart.config > configs/default.yaml
    print(Config().to_yaml(comments=True), end="")
