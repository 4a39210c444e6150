"""Energy, forces, stress, weight and group of one frame, found and checked.

Takes a frame and the keys to look under, returns labels in eV, eV/Å and eV/Å^3 (ASE's sign). Builds no graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flashcart.config import Config
from flashcart.data.frames import Frame
from flashcart.data.graph import cell_volume

Array = npt.NDArray[np.float64]

_VOIGT_ORDER = "xx yy zz yz xz xy"
_AXES = {"x": 0, "y": 1, "z": 2}


@dataclass(frozen=True)
class LabelKeys:
    """Where labels stand in a frame; the configuration keys of the same names say what each means."""

    energy_key: str = "REF_energy"
    forces_key: str = "REF_forces"
    stress_key: str | None = "REF_stress"
    virial_key: str | None = None
    stress_order: str = _VOIGT_ORDER
    allow_missing_forces: bool = False
    weight_key: str | None = None
    split_key: str | None = None

    @classmethod
    def from_config(cls, config: Config) -> LabelKeys:
        """Return the keys that a configuration names."""
        return cls(**{name: getattr(config, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Labels:
    """Labels of one frame; forces [n_atoms, 3], stress [3, 3] symmetric; None where the frame has none."""

    energy: float
    forces: Array | None
    stress: Array | None
    weight: float
    group: str | None


NO_LABELS = Labels(energy=0.0, forces=None, stress=None, weight=1.0, group=None)


def read_labels(frame: Frame, keys: LabelKeys, sources: dict[str, str]) -> Labels:
    """Return the labels of a frame.

    A label is looked for under its configured key and, if that is absent, among the results that ASE attaches to a
    calculator (energy, forces, stress). `sources` remembers over the frames of a file where each label was found,
    and is added to: one file must not mix the two. Raises DataError for a label that is missing, mixed, malformed or
    not finite, and for a stress label of a cell without volume.
    """
    return Labels(
        energy=_energy(frame, keys, sources),
        forces=_forces(frame, keys, sources),
        stress=_stress(frame, keys, sources),
        weight=_weight(frame, keys),
        group=_group(frame, keys),
    )


def _find(frame: Frame, key: str, plain: str, sources: dict[str, str]) -> Any:
    """Return the label under `key`, else that of a calculator, else None; refuse a file that mixes the two."""
    atoms = frame.atoms
    results = atoms.calc.results if atoms.calc is not None else {}
    holders = (atoms.arrays, results) if plain == "forces" else (atoms.info, results)
    value, source = next((holder[key] for holder in holders if key in holder), None), key
    if value is None and plain in results:
        value, source = results[plain], plain
    if value is not None and sources.setdefault(plain, source) != source:
        raise frame.place.error(f"the {plain} stands under {source}, in earlier frames under {sources[plain]}.")
    return value


def _keys_present(frame: Frame) -> str:
    results = frame.atoms.calc.results if frame.atoms.calc is not None else {}
    present = sorted({*frame.atoms.info, *frame.atoms.arrays, *results} - {"numbers", "positions"})
    return f"keys present: {', '.join(present)}" if present else "no keys are present"


def _energy(frame: Frame, keys: LabelKeys, sources: dict[str, str]) -> float:
    value = _find(frame, keys.energy_key, "energy", sources)
    if value is None:
        raise frame.place.error(f"no energy under the key {keys.energy_key}; {_keys_present(frame)}.")
    return _scalar(frame, value, f"the energy under {keys.energy_key}")


def _scalar(frame: Frame, value: Any, name: str) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise frame.place.error(f"{name} is not a finite number: {value}.", line=frame.place.line + 1)
    return float(array.reshape(()))


def _forces(frame: Frame, keys: LabelKeys, sources: dict[str, str]) -> Array | None:
    value = _find(frame, keys.forces_key, "forces", sources)
    if value is None:
        # The force on a single atom is zero by symmetry: such frames often come without.
        if keys.allow_missing_forces or len(frame.atoms) == 1:
            return None
        hint = "allow_missing_forces=true masks them"
        raise frame.place.error(f"no forces under the key {keys.forces_key} ({hint}); {_keys_present(frame)}.")
    forces = np.asarray(value)
    if forces.shape != (len(frame.atoms), 3) or forces.dtype.kind not in "if":
        raise frame.place.error(f"the forces under {keys.forces_key} are not three numbers per atom.")
    for atom in np.flatnonzero(~np.isfinite(forces).all(axis=1)):
        raise frame.place.error(f"the force on atom {atom} is not finite: {forces[atom].tolist()}.", atom=int(atom))
    return forces.astype(np.float64)


def _stress(frame: Frame, keys: LabelKeys, sources: dict[str, str]) -> Array | None:
    """Return the stress label, or that of the virial: stress = -virial / volume."""
    volume = cell_volume(frame.atoms.cell.array, frame.atoms.pbc)
    virial = frame.atoms.info.get(keys.virial_key) if keys.virial_key is not None else None
    value = _find(frame, keys.stress_key, "stress", sources) if keys.stress_key is not None else None
    if virial is not None and (value is None or keys.stress_key not in frame.atoms.info):
        value, name = virial, f"the virial under {keys.virial_key}"
    else:
        virial, name = None, f"the stress under {keys.stress_key}"
    if value is None:
        return None
    if volume == 0.0:
        pbc = " ".join("FT"[int(flag)] for flag in frame.atoms.pbc)
        raise frame.place.error(f"{name} belongs to a cell without volume (pbc {pbc}): stress is not defined there.")
    # Under the plain key ASE takes 3x3 numbers only and has put them into its own order.
    order = _VOIGT_ORDER if virial is None and sources["stress"] == "stress" else keys.stress_order
    tensor = _symmetric_tensor(frame, value, order, name)
    return tensor if virial is None else -tensor / volume


def _symmetric_tensor(frame: Frame, value: Any, order: str, name: str) -> Array:
    """Return [3, 3] from 6 components in the given order, 9 components, or 3x3."""
    array = np.asarray(value)
    line = frame.place.line + 1
    if array.dtype.kind not in "if" or array.shape not in ((6,), (9,), (3, 3)):
        raise frame.place.error(f"{name} is not 6, 9 or 3x3 numbers: {value}.", line=line)
    if not np.isfinite(array).all():
        raise frame.place.error(f"{name} is not finite: {array.tolist()}.", line=line)
    if array.shape == (6,):
        tensor = np.empty((3, 3))
        for component, number in zip(order.split(), array, strict=True):
            first, second = (_AXES[axis] for axis in component)
            tensor[first, second] = tensor[second, first] = number
        return tensor
    tensor = array.reshape(3, 3).astype(np.float64)
    if np.abs(tensor - tensor.T).max() > 1e-2 * np.abs(tensor).max():
        raise frame.place.error(f"{name} is not symmetric: {tensor.tolist()}.", line=line)
    return np.asarray(0.5 * (tensor + tensor.T))


def _weight(frame: Frame, keys: LabelKeys) -> float:
    if keys.weight_key is None:
        return 1.0
    if keys.weight_key not in frame.atoms.info:
        raise frame.place.error(f"no weight under the key {keys.weight_key}; {_keys_present(frame)}.")
    weight = _scalar(frame, frame.atoms.info[keys.weight_key], f"the weight under {keys.weight_key}")
    if weight < 0.0:
        raise frame.place.error(f"the weight under {keys.weight_key} is negative: {weight:g}.")
    return weight


def _group(frame: Frame, keys: LabelKeys) -> str | None:
    if keys.split_key is None:
        return None
    if keys.split_key not in frame.atoms.info:
        raise frame.place.error(f"nothing under split_key {keys.split_key}; {_keys_present(frame)}.")
    return str(frame.atoms.info[keys.split_key])
