"""The deployable model: one safetensors file of weights and metadata.

Loading runs no code: safetensors holds numbers and one JSON header, nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

import flashcart
from flashcart.errors import ModelFileError, UserError
from flashcart.model import FlashCart, ModelConfig

FORMAT_VERSION = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64}
_MARK = "flashcart"
_NEEDED = ("package_version", "config", "elements", "units", "r_max", "dtype", "offsets")


def save_model(path: str | Path, model: FlashCart, *, training_summary: dict[str, Any] | None = None) -> None:
    """Write a model to one file; a temporary file is renamed, so that the target is whole or untouched.

    Args:
        path: the file; its folder is made if missing.
        model: the model. The lone-atom terms are evaluated and stored as constants.
        training_summary: JSON values kept in the metadata.
    """
    model.freeze_free_atoms()
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    metadata = {_MARK: json.dumps(_metadata(model, training_summary or {}), sort_keys=True)}
    write_atomic(Path(path), save(tensors, metadata=metadata))


def _metadata(model: FlashCart, training_summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "package_version": flashcart.__version__,
        "config": asdict(model.config),
        "elements": list(model.config.elements),
        "units": {"energy": "eV", "length": "Å"},
        "r_max": model.config.r_max,
        "dtype": str(model.embedding.dtype).removeprefix("torch."),
        "offsets": dict(zip(model.config.elements, model.offsets.tolist(), strict=True)),
        "training": training_summary,
    }


def write_atomic(path: Path, content: bytes) -> None:
    """Write bytes to a temporary file in the same folder, flush it to disk and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a model file, without reading its weights.

    Raises:
        ModelFileError: the file is missing, truncated, of another kind, or from a newer version.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            header_text = stream.read(length) if 2 <= length <= 100_000_000 else b""
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such model file.") from None
    except OSError as error:
        raise ModelFileError(f"{path}: the model file cannot be read ({error.strerror}).") from None
    if not header_text.startswith(b"{"):
        raise ModelFileError(f"{path}: not a FlashCart model (a .safetensors file written by flashcart-train).")
    return _check_header(path, header_text, length, size)


def _check_header(path: Path, header_text: bytes, length: int, size: int) -> dict[str, Any]:
    truncated = ModelFileError(f"{path}: the model file is truncated or damaged; copy or write it again.")
    if len(header_text) < length:
        raise truncated
    try:
        header = json.loads(header_text)
    except ValueError:
        raise truncated from None
    mark = header.get("__metadata__", {}).get(_MARK)
    if mark is None:
        raise ModelFileError(f"{path}: a safetensors file, but not a FlashCart model.")
    end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
    if size != 8 + length + end:
        raise truncated
    try:
        metadata: dict[str, Any] = json.loads(mark)
        newer = metadata["format_version"] > FORMAT_VERSION
        complete = newer or set(_NEEDED) <= set(metadata)
    except (ValueError, TypeError, KeyError):
        raise truncated from None
    if not complete:
        raise truncated
    if newer:
        raise ModelFileError(
            f"{path}: written by FlashCart {metadata.get('package_version')} in model format "
            f"{metadata['format_version']}; this version ({flashcart.__version__}) reads up to {FORMAT_VERSION}. "
            "Update FlashCart."
        )
    return metadata


def load_model(path: str | Path, *, device: str | torch.device = "cpu", dtype: str | None = None) -> FlashCart:
    """Load a model for evaluation.

    Args:
        path: a file written by `flashcart-train`.
        device: where it runs: auto, cpu, gpu, cuda, cuda:N.
        dtype: float32 or float64; None keeps the trained one.

    Returns:
        The model in evaluation mode; its parameters require no gradient.

    Raises:
        ModelFileError: the file is missing, truncated, of another kind, or from a newer version.
        UserError: unknown dtype or device.
    """
    from flashcart.device import resolve_device

    metadata = read_metadata(path)
    if dtype not in (None, "trained", *DTYPES):
        raise UserError(f"dtype={dtype!r}: expected one of trained, {', '.join(DTYPES)}.")
    name = metadata["dtype"] if dtype in (None, "trained") else str(dtype)
    model = FlashCart(_config(path, metadata), dtype=DTYPES[metadata["dtype"]])
    try:
        model.load_state_dict(load(Path(path).read_bytes()))
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{path}: the weights do not fit the model that the file describes ({reason}).") from None
    cast_model(model, DTYPES[name])
    model.requires_grad_(False)
    model.eval()  # on the CPU: on a GPU, lone atoms would compile kernels one after the other (see model_kernels)
    return model.to(resolve_device(device) if isinstance(device, str) else device)


def _config(path: str | Path, metadata: dict[str, Any]) -> ModelConfig:
    unknown = set(metadata["config"]) - {field.name for field in fields(ModelConfig)}
    if unknown:
        raise ModelFileError(f"{path}: this version knows no model key {', '.join(sorted(unknown))}; update FlashCart.")
    return ModelConfig(**metadata["config"])


def cast_model(model: FlashCart, dtype: torch.dtype) -> None:
    """Cast the parameters; statistics stay float64."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
