"""The state of a training run on disk: write, read, compare.

Takes tensors and a small JSON document, returns the same. A state is one file, state.safetensors, that carries the
document in its header, replaced at once: a run killed at any moment leaves the old state or the new one. state.json
holds the same document for people. Writes no deployable models (`flashcart.deploy` does) and nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from flashcart.deploy import write_atomic
from flashcart.errors import UserError

STATE_FORMAT_VERSION = 1
STATE_FILE = "state.safetensors"
STATE_DOCUMENT = "state.json"


@dataclass(frozen=True)
class State:
    """tensors: by name (model., average., optimizer., random.); document: everything else, JSON values only."""

    tensors: Mapping[str, torch.Tensor]
    document: Mapping[str, Any]


def save_state(folder: Path, state: State) -> None:
    """Write state.safetensors and state.json into `folder`."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.tensors.items()}
    document = {"state_format_version": STATE_FORMAT_VERSION, **state.document}
    write_atomic(folder / STATE_FILE, save(tensors, metadata={"flashcart_state": json.dumps(document)}))
    write_atomic(folder / STATE_DOCUMENT, f"{json.dumps(document, indent=2)}\n".encode())


def load_state(folder: Path) -> State | None:
    """Return the state in `folder`, or None where there is none.

    Raises UserError for a file that is not a state, is damaged, or comes from a newer version.
    """
    path = folder / STATE_FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            document = json.loads((file.metadata() or {})["flashcart_state"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise UserError(f"{path} is not a readable training state ({error}); move it away to start afresh.") from error
    if document["state_format_version"] > STATE_FORMAT_VERSION:
        raise UserError(
            f"{path} has state format {document['state_format_version']}, this version reads up to "
            f"{STATE_FORMAT_VERSION}: continue the run with the newer FlashCart that wrote it."
        )
    return State(tensors, document)


def differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return 'key: saved value, now value' for every entry of two flat documents that differs."""
    current = json.loads(json.dumps(current))
    keys = sorted(saved.keys() | current.keys())
    return [
        f"{key} was {_word(saved.get(key))}, is now {_word(current.get(key))}"
        for key in keys
        if saved.get(key) != current.get(key)
    ]


def _word(value: Any) -> str:
    """Write a JSON value as a user would in YAML."""
    return "~" if value is None else json.dumps(value, ensure_ascii=False).replace('"', "")


def with_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors under names that start with `prefix` and a dot."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return those tensors whose names start with `prefix` and a dot, without it."""
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def random_states() -> dict[str, torch.Tensor]:
    """Return the states of torch's random generators."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: Mapping[str, torch.Tensor]) -> None:
    """Put torch's random generators into saved states."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(states["cuda"])
