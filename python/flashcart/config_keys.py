"""Every configuration key: name, default, what is allowed, one line of meaning.

Frozen dataclasses only. `--help`, the reference page of the documentation and configs/default.yaml are generated from
them. Reads no files (`flashcart.config` does) and imports neither torch nor numpy.
"""

# ruff: noqa: RUF009 - key() returns a dataclass field; its defaults are immutable.

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from flashcart.config_kinds import (
    AnyNumber,
    Boolean,
    Choice,
    DeviceName,
    Devices,
    FilePath,
    Integer,
    Kind,
    ListOf,
    MappingOf,
    Number,
    Only,
    StressOrder,
    Text,
)
from flashcart.errors import ConfigError

PROPERTIES = ("energy", "forces", "stress", "virials")
REDUCTIONS = ("sae", "mae", "sse", "mse", "rmse", "maxe", "huber_sum", "huber_mean", "norm_sum", "norm_mean")
NORMALIZATIONS = ("per_atom", "per_sqrt_atom", "none")
SHAPES = ("linear", "cosine", "sqrt")


MODEL_KEYS = (
    "r_max",
    "r_min",
    "n_hidden_feats",
    "l_max_hidden_feats",
    "l_max_edge_attrs",
    "n_radial",
    "radial_mapping",
    "cutoff_poly_order",
    "n_interactions",
    "correlation",
    "path_reduced_product",
    "nonlinearity",
    "gate_activation",
    "gate_bias",
    "layer_norm",
    "element_agnostic_interaction",
    "n_element_interaction_features",
    "element_agnostic_product",
    "hidden_radial",
    "hidden_readout",
    "zbl",
    "use_triton",
    "tf32",
    "deterministic",
)


def key(default: Any, kind: Kind, meaning: str, group: str = "") -> Any:
    """Declare a key. None (~ in YAML) is allowed where the annotation says so; `group` opens a new heading."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning, "group": group})


@dataclass(frozen=True)
class LossTerm:
    """One term of a loss."""

    property: str = key(None, Choice(PROPERTIES), "what is compared")
    reduce: str = key(None, Choice(REDUCTIONS), "how the errors of a batch become one number")
    normalization: str = key("none", Choice(NORMALIZATIONS), "division of each error by the structure's atoms")
    weight: float = key(1.0, Number(minimum=0.0), "factor in a sum of terms")
    delta: float = key(1.0, Number(above=0.0), "where huber_sum and huber_mean turn from quadratic to linear")


@dataclass(frozen=True)
class Loss:
    """A value of a loss key: one term, a list of terms, or a list under `weighted_sum`; written so if summed."""

    summed: bool = True
    allowed: str = (
        f"one term or a list of terms under weighted_sum; a term has property ({', '.join(PROPERTIES)}), "
        f"reduce ({', '.join(REDUCTIONS)}), normalization ({', '.join(NORMALIZATIONS)}), weight, delta"
    )

    def convert(self, value: Any, folder: Path) -> tuple[LossTerm, ...]:
        """Refuse: the reader converts losses itself, term by term, for errors that name the key inside."""
        raise ValueError


_TRAIN_LOSS = (
    LossTerm("energy", "huber_sum", "per_atom", weight=1.0, delta=0.005),
    LossTerm("forces", "huber_sum", "none", weight=0.01, delta=0.05),
)
_EARLY_STOPPING_LOSS = (LossTerm("energy", "mae", "per_atom"), LossTerm("forces", "mae"))
_VALID_LOSSES = (
    LossTerm("energy", "rmse", "per_atom"),
    LossTerm("energy", "mae", "per_atom"),
    LossTerm("forces", "rmse"),
    LossTerm("forces", "mae"),
)
_PRECISIONS = Choice(
    ("32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"),
    aliases=((32, "32-true"), (64, "64-true"), ("32", "32-true"), ("64", "64-true")),
)


@dataclass(frozen=True)
class Config:
    """Every key of training and testing. Energies eV, lengths Å, forces eV/Å, stress eV/Å^3 in ASE's sign."""

    train_path: Path | None = key(None, FilePath(), "extended XYZ to train on", "data")
    valid_path: Path | None = key(None, FilePath(), "extended XYZ to validate on")
    test_path: Path | None = key(None, FilePath(), "extended XYZ that flashcart-test evaluates besides")
    valid_fraction: float | None = key(None, Number(above=0.0, below=1.0), "share of the training frames to split off")
    split_key: str | None = key(None, Text(), "info key; frames with the same value stay together in that split")
    elements: tuple[str, ...] | None = key(
        None, ListOf(Text("an element symbol"), distinct=True), "symbols in type order; ~: those of train_path"
    )
    energy_key: str = key("REF_energy", Text(), "info key of the total energy, eV")
    forces_key: str = key("REF_forces", Text(), "arrays key of the forces, eV/Å")
    stress_key: str | None = key("REF_stress", Text(), "info key of the stress, eV/Å^3; ~: no stress is read")
    virial_key: str | None = key(None, Text(), "info key of the virial, eV; stress = -virial/volume")
    stress_order: str = key("xx yy zz yz xz xy", StressOrder(), "order of 6-component labels")
    allow_missing_forces: bool = key(False, Boolean(), "frames without forces are masked instead of refused")
    weight_key: str | None = key(None, Text(), "info key of a loss weight per structure")
    isolated_atom_energies: dict[str, float] | None = key(
        None, MappingOf(AnyNumber()), "symbol: eV; ~: from frames of one atom, else offsets are fitted"
    )
    train_batch_size: int = key(192, Integer(1), "structures per batch over all ranks")
    eval_batch_size: int = key(192, Integer(1), "the same in validation and testing")
    dynamic_batching: bool = key(True, Boolean(), "fill batches up to atom and edge budgets = batch size x averages")
    drop_last: bool = key(False, Boolean(), "fixed batches: drop an incomplete last one")
    data_seed: int = key(1234, Integer(0), "seed of splits and of the order of frames")
    model_seed: int = key(1234, Integer(0), "seed of the initial parameters")
    n_workers: int = key(0, Integer(0), "processes that load data")
    output_path: Path | None = key(None, FilePath(), "folder of the run")
    checkpoint: Path | None = key(None, FilePath(), "deployable file to start from, or to test")

    r_max: float = key(5.5, Number(above=0.0), "cutoff, Å", "model")
    r_min: float = key(0.0, Number(minimum=0.0), "start of the radial map, Å")
    n_hidden_feats: int = key(128, Integer(1), "channels per rank of node features")
    l_max_hidden_feats: int = key(2, Integer(0), "highest rank passed between layers")
    l_max_edge_attrs: int = key(3, Integer(0), "highest rank of edge attributes and of interaction outputs")
    n_radial: int = key(8, Integer(1), "radial functions")
    radial_mapping: str = key("cosine", Choice(("cosine", "affine")), "map of distances to the Chebyshev interval")
    cutoff_poly_order: int = key(6, Integer(2), "p of the polynomial envelope")
    n_interactions: int = key(2, Integer(1), "message-passing layers")
    correlation: int = key(3, Integer(1), "degree of the product layer; 1: none")
    path_reduced_product: bool = key(False, Boolean(), "sum the paths of a product with learnable weights")
    nonlinearity: bool = key(True, Boolean(), "gate after each interaction")
    gate_activation: str = key("sigmoid", Choice(("sigmoid", "silu")), "activation of the gates")
    gate_bias: bool = key(True, Boolean(), "bias in the gates")
    layer_norm: bool = key(True, Boolean(), "normalise by one RMS over all ranks and channels of a node")
    element_agnostic_interaction: bool = key(True, Boolean(), "false: radial functions see both elements")
    n_element_interaction_features: int | None = key(None, Integer(1), "width of those element embeddings")
    element_agnostic_product: bool = key(True, Boolean(), "false: product weights per element")
    hidden_radial: tuple[int, ...] = key((64, 64), ListOf(Integer(1), n_min=0), "widths of the radial network")
    hidden_readout: tuple[int, ...] = key((64, 64), ListOf(Integer(1), n_min=0), "widths of the readout network")
    atomic_shifts: tuple[float, ...] | None = key(
        None, ListOf(AnyNumber()), "prior energy offsets in the order of elements, eV"
    )
    fit_atomic_shifts: bool = key(True, Boolean(), "fit corrections to the prior offsets")
    zbl: bool = key(False, Boolean(), "screened nuclear repulsion at short range")
    use_triton: bool = key(True, Boolean(), "Triton kernels for CUDA inputs, the torch back end elsewhere")
    tf32: bool = key(False, Boolean(), "allow TF32 in matrix products")
    deterministic: bool = key(False, Boolean(), "bitwise reproducible runs")

    optimizer: str = key("muon", Choice(("muon", "adamw")), "muon: Muon for matrices, AdamW for the rest", "optimizer")
    lr: float = key(5e-3, Number(above=0.0), "learning rate")
    weight_decay: float = key(1e-5, Number(minimum=0.0), "decoupled weight decay")
    grad_clip_norm: float | None = key(None, Number(above=0.0), "largest gradient norm; ~: no clipping")
    muon_ns_steps: int = key(5, Integer(1), "Newton-Schulz steps")
    muon_ns_rms_scale: float = key(0.2, Number(above=0.0), "RMS that Muon's update is matched to")
    muon_ns_polish_steps: int = key(0, Only(0), "accepted at its default")
    muon_alignment_damping: bool = key(False, Only(False), "accepted at its default")
    muon_damping_tau: float = key(2.0, Only(2.0), "accepted at its default")
    muon_damping_ema_decay: float = key(0.9, Only(0.9), "accepted at its default")
    muon_damping_min_scale: float = key(0.1, Only(0.1), "accepted at its default")
    log_weight_norms: bool = key(False, Boolean(), "weight norms in metrics.csv")

    warmup_epochs: int = key(10, Integer(0), "epochs from lr x start_factor up to lr", "schedule")
    start_factor: float = key(0.1, Number(above=0.0, maximum=1.0), "first learning rate over lr")
    warmup_shape: str = key("linear", Choice(SHAPES), "shape of the warm-up")
    decay_epochs: int = key(20, Integer(0), "last epochs, from lr down to lr x end_factor")
    end_factor: float = key(1e-3, Number(minimum=0.0, maximum=1.0), "last learning rate over lr")
    decay_shape: str = key("sqrt", Choice(SHAPES), "shape of the decay")
    max_epochs: int = key(400, Integer(1), "epochs")
    validate_every: int = key(1, Integer(1), "epochs between validations")
    save_every: int = key(10, Integer(1), "epochs between checkpoints")
    early_stopping_patience: int | None = key(None, Integer(1), "validations without improvement before stopping")
    ema_decay: float | None = key(
        0.99, Number(minimum=0.0, below=1.0), "moving average of parameters that is validated and deployed; ~: none"
    )

    device: str = key("auto", DeviceName(), "where to compute; auto: a GPU if there is one", "machine")
    devices: str | int | tuple[int, ...] = key("auto", Devices(), "Lightning Fabric's devices")
    n_nodes: int = key(1, Integer(1), "Lightning Fabric's number of machines")
    strategy: str = key("auto", Text(), "Lightning Fabric's strategy")
    precision: str | None = key(None, _PRECISIONS, "Lightning Fabric's precision; ~: float32")
    predict_compile: bool = key(False, Boolean(), "torch.compile of predictions")
    predict_compile_mode: str = key(
        "reduce-overhead",
        Choice(("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")),
        "mode of torch.compile",
    )
    predict_compile_fullgraph: bool = key(True, Boolean(), "refuse graph breaks")
    predict_compile_dynamic: bool = key(False, Boolean(), "compile for any size instead of padded capacities")
    predict_pad_atom_multiple: int = key(128, Integer(1), "rounding of the atom capacity")
    predict_pad_edge_multiple: int = key(128, Integer(1), "rounding of the edge capacity")
    predict_pad_graph_multiple: int = key(8, Integer(1), "rounding of the structure capacity")

    train_loss: tuple[LossTerm, ...] = key(_TRAIN_LOSS, Loss(), "what is differentiated", "losses")
    early_stopping_loss: tuple[LossTerm, ...] = key(_EARLY_STOPPING_LOSS, Loss(), "what selects the best model")
    valid_losses: tuple[LossTerm, ...] = key(_VALID_LOSSES, Loss(summed=False), "what is logged and reported")

    def model_keys(self) -> dict[str, Any]:
        """Return the keys that define the model, all but the elements."""
        return {name: getattr(self, name) for name in MODEL_KEYS}

    def require(self, *names: str) -> None:
        """Raise ConfigError for the first of these keys that is unset."""
        for name in names:
            if getattr(self, name) is None:
                raise ConfigError(f"{name}: required here but not set; give it in the YAML file or as {name}=...")

    def to_yaml(self, *, comments: bool = False) -> str:
        """Return YAML that loads as this configuration; with `comments`, each key's meaning stands beside it."""
        lines: list[str] = []
        for entry in fields(self):
            if comments and entry.metadata["group"]:
                lines += ["", f"# {entry.metadata['group']}"] if lines else [f"# {entry.metadata['group']}"]
            value = to_plain(getattr(self, entry.name), entry.metadata["kind"])
            text = yaml.dump({entry.name: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
            comment = f"  # {entry.metadata['meaning']}" if comments else ""
            head, _, rest = text.rstrip("\n").partition("\n")
            lines += [head + comment, *rest.splitlines()]
        return "\n".join(lines) + "\n"


def to_plain(value: Any, kind: Kind) -> Any:
    """Return a checked value as YAML would hold it: numbers, text, lists and mappings."""
    if isinstance(kind, Loss):
        terms = [_plain_term(term) for term in value]
        return {"weighted_sum": terms} if kind.summed else terms
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _plain_term(term: LossTerm) -> dict[str, Any]:
    values = {entry.name: getattr(term, entry.name) for entry in fields(term)}
    if term.delta == LossTerm.delta and not term.reduce.startswith("huber"):
        del values["delta"]
    return values


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Writes None as ~, and lists of numbers or words in one line."""


def _represent_sequence(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    flow = not any(isinstance(item, dict) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flow)


_Dumper.add_representer(type(None), lambda dumper, _: dumper.represent_scalar("tag:yaml.org,2002:null", "~"))
_Dumper.add_representer(list, _represent_sequence)
