"""Configuration: defaults, YAML, overrides, and the sentence for every mistake."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from flashcart.config import MODEL_KEYS, Config, LossTerm, describe_keys, keys_table, load_config
from flashcart.errors import ConfigError

DEFAULT_YAML = Path(__file__).parents[1] / "python" / "flashcart" / "configs" / "default.yaml"


def _message(tmp_path: Path, text: str = "", overrides: tuple[str, ...] = ()) -> str:
    """Return the error of a YAML text with overrides, the file's folder removed."""
    path = tmp_path / "my_run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_default_yaml_is_the_text_generated_from_the_dataclass() -> None:
    assert DEFAULT_YAML.read_text(encoding="utf-8") == Config().to_yaml(comments=True)


def test_default_yaml_loads_as_the_defaults() -> None:
    assert load_config(DEFAULT_YAML) == Config() == load_config()


def test_every_key_has_a_group_a_kind_and_one_line_of_meaning() -> None:
    assert next(iter(fields(Config))).metadata["group"]
    for entry in fields(Config):
        assert entry.metadata["meaning"], entry.name
        assert entry.metadata["kind"].allowed, entry.name


def test_help_and_table_name_every_key_with_its_default() -> None:
    help_text, table = describe_keys(), keys_table()
    for entry in fields(Config):
        assert f"  {entry.name}: " in help_text
        assert f"| `{entry.name}` |" in table
    assert "a number > 0; default 0.005" in help_text


def test_model_keys_are_the_model_part_of_the_configuration() -> None:
    assert tuple(load_config(None, ["r_max=4"]).model_keys()) == MODEL_KEYS
    assert load_config(None, ["r_max=4"]).model_keys()["r_max"] == 4.0


def test_override_wins_over_yaml_and_a_later_one_over_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("lr: 1e-2\nmax_epochs: 3\n")
    config = load_config(path, ["lr=2e-3", "lr=5e-4"])
    assert (config.lr, config.max_epochs) == (5e-4, 3)


@pytest.mark.parametrize(("text", "value"), [("5e-3", 5e-3), ("1E-2", 1e-2), ("2.", 2.0), (".5", 0.5), ("3", 3.0)])
def test_numbers_are_read_as_people_write_them(text: str, value: float) -> None:
    assert load_config(None, [f"lr={text}"]).lr == value


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("Off", False), ("true", True), ("False", False)])
def test_boolean_words_of_yaml_1_1_and_1_2_are_read(word: str, value: bool) -> None:
    assert load_config(None, [f"zbl={word}"]).zbl is value


def test_the_elements_no_and_y_stay_text() -> None:
    assert load_config(None, ["elements=[H, No, Y, N]"]).elements == ("H", "No", "Y", "N")


def test_tilde_unsets_an_optional_key(tmp_path: Path) -> None:
    config = load_config(None, ["ema_decay=~", "stress_key=null", "grad_clip_norm="])
    assert (config.ema_decay, config.stress_key, config.grad_clip_norm) == (None, None, None)


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert load_config(tmp_path / "empty.yaml") == Config()


def test_paths_start_in_the_folder_of_the_yaml_or_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Läufe 1").mkdir()
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "Läufe 1" / "a b.yaml"
    path.write_text("train_path: ../träin set.xyz\nvalid_path: /data/v.xyz\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config("../Läufe 1/a b.yaml", ["test_path=t.xyz", "output_path=~/runs"])
    assert config.train_path is not None
    assert config.train_path.resolve() == tmp_path / "träin set.xyz"
    assert config.valid_path == Path("/data/v.xyz")
    assert config.test_path == tmp_path / "elsewhere" / "t.xyz"
    assert config.output_path == Path("~/runs").expanduser()


def test_written_configuration_loads_as_the_same_one(tmp_path: Path) -> None:
    overrides = [
        "train_path=a b/ü.xyz",
        "elements=[H, O, No]",
        "isolated_atom_energies={H: -13.6, O: -2043.25}",
        "lr=1e-30",
        "precision=64",
        "devices=[0, 1]",
        "train_loss.weighted_sum.1.weight=3",
        "early_stopping_loss={property: stress, reduce: huber_mean}",
        "valid_losses=[{property: virials, reduce: maxe, normalization: per_sqrt_atom, delta: 2}]",
        "stress_order=[xx, yy, zz, xy, xz, yz]",
    ]
    config = load_config(None, overrides)
    for comments in (False, True):
        (tmp_path / "config.yaml").write_text(config.to_yaml(comments=comments), encoding="utf-8")
        assert load_config(tmp_path / "config.yaml") == config


def test_default_losses_are_the_documented_ones() -> None:
    config = Config()
    assert config.train_loss == (
        LossTerm("energy", "huber_sum", "per_atom", 1.0, 0.005),
        LossTerm("forces", "huber_sum", "none", 0.01, 0.05),
    )
    assert config.early_stopping_loss == (LossTerm("energy", "mae", "per_atom"), LossTerm("forces", "mae"))


def test_a_dotted_override_changes_one_entry_of_the_default_loss() -> None:
    before, after = Config(), load_config(None, ["train_loss.weighted_sum.0.weight=2"])
    assert after.train_loss[0].weight == 2.0
    assert after.train_loss[0].delta == before.train_loss[0].delta
    assert after.train_loss[1] == before.train_loss[1]
    assert Config() == before


def test_a_dotted_override_changes_one_entry_of_the_files_loss(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("train_loss:\n  property: energy\n  reduce: mse\n  normalization: per_atom\n")
    assert load_config(tmp_path / "a.yaml", ["train_loss.weight=7"]).train_loss == (
        LossTerm("energy", "mse", "per_atom", 7.0),
    )


def test_a_dotted_override_adds_to_a_mapping() -> None:
    config = load_config(None, ["isolated_atom_energies.H=-13.6", "isolated_atom_energies.O=-2e3"])
    assert config.isolated_atom_energies == {"H": -13.6, "O": -2000.0}


@pytest.mark.parametrize(
    ("yaml", "sentence"),
    [
        ("train_batch_siz: 3", "train_batch_siz: unknown key in my_run.yaml, did you mean train_batch_size?"),
        ("zzzzzz: 3", "zzzzzz: unknown key in my_run.yaml."),
        ("lr: fast", "lr: got 'fast' in my_run.yaml, allowed: a number > 0."),
        ("lr: 0", "lr: got 0 in my_run.yaml, allowed: a number > 0."),
        ("lr: .nan", "lr: got nan in my_run.yaml, allowed: a number > 0."),
        ("lr: true", "lr: got true in my_run.yaml, allowed: a number > 0."),
        ("max_epochs: 1.5", "max_epochs: got 1.5 in my_run.yaml, allowed: an integer >= 1."),
        ("max_epochs: true", "max_epochs: got true in my_run.yaml, allowed: an integer >= 1."),
        ("zbl: 1", "zbl: got 1 in my_run.yaml, allowed: true or false."),
        ("ema_decay: 1", "ema_decay: got 1 in my_run.yaml, allowed: a number >= 0 and < 1, or ~."),
        ("optimizer: sgd", "optimizer: got 'sgd' in my_run.yaml, allowed: muon, adamw."),
        ("optimizer: ~", "optimizer: got ~ in my_run.yaml, allowed: muon, adamw."),
        ("device: gpu:1", "device: got 'gpu:1' in my_run.yaml, allowed: auto, cpu, gpu, cuda or cuda:N."),
        ("hidden_radial: 64", "hidden_radial: got 64 in my_run.yaml, allowed: a list, each entry an integer >= 1."),
        (
            "elements: [H, O, H]",
            "elements: got [H, O, H] in my_run.yaml, allowed: a list without repetition, each entry an element "
            "symbol, or ~.",
        ),
        (
            "muon_damping_tau: 3",
            "muon_damping_tau: got 3 in my_run.yaml, allowed: 2 (other values are not supported).",
        ),
        (
            "stress_order: xx yy zz xy",
            "stress_order: got 'xx yy zz xy' in my_run.yaml, allowed: the six components xx yy zz yz xz xy in the "
            "order of the data.",
        ),
        ("valid_path: a\nvalid_fraction: 0.1", "valid_fraction: set together with valid_path; give one of the two."),
        ("r_min: 6", "r_min: got 6, allowed: a number below r_max = 5.5."),
        (
            "elements: [H]\natomic_shifts: [1, 2]",
            "atomic_shifts: got 2 numbers, allowed: one for each of 1 elements.",
        ),
        ("- a\n- b", "my_run.yaml: expected lines of the form 'key: value', got '[a, b]'."),
        (
            "train_loss: {weighted_sum: [{property: energy, reduce: mae, wieght: 2}]}",
            "train_loss.weighted_sum.0.wieght: unknown key in my_run.yaml, did you mean "
            "train_loss.weighted_sum.0.weight?",
        ),
        (
            "train_loss: {property: energy, reduce: mean}",
            "reduce: got 'mean' for train_loss in my_run.yaml, allowed: sae, mae, sse, mse, rmse, maxe, huber_sum, "
            "huber_mean, norm_sum, norm_mean.",
        ),
        (
            "train_loss: {reduce: mae}",
            "train_loss.property: missing in my_run.yaml, allowed: energy, forces, stress, virials.",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(tmp_path: Path, yaml: str, sentence: str) -> None:
    assert _message(tmp_path, yaml) == sentence


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("lr", "'lr': expected key=value."),
        ("lrr=1", "lrr: unknown key in the override 'lrr=1', did you mean lr?"),
        ("lr=x", "lr: got 'x' in the override 'lr=x', allowed: a number > 0."),
        (
            "train_loss.weighted_sum.5.weight=2",
            "train_loss.weighted_sum.5: train_loss.weighted_sum is a list with entries 0 to 1 in the override "
            "'train_loss.weighted_sum.5.weight=2'.",
        ),
        ("lr.a=2", "lr.a: lr is 0.005 and holds no a in the override 'lr.a=2'."),
        (
            "train_loss.weight=2",
            "train_loss.weight: stands beside weighted_sum in the override 'train_loss.weight=2'; put it into its "
            "terms.",
        ),
    ],
)
def test_a_mistake_in_an_override_is_one_sentence(tmp_path: Path, override: str, sentence: str) -> None:
    assert _message(tmp_path, overrides=(override,)) == sentence


@pytest.mark.parametrize(
    ("yaml", "place"),
    [
        ("lr: 1\nmax_epochs: [1, 2\n", "line 3, column 1"),
        ("lr: 1\n  max_epochs: 2\n", "line 2, column 13"),
        ("lr: 1\nzbl: true\nlr: 2\n", "line 3, column 1: the key lr stands here a second time"),
        ("train_loss:\n  property: energy\n  property: forces\n", "line 3, column 3: the key property stands here"),
        ("lr: !!python/object:os.system x\n", "line 1, column 5"),
    ],
)
def test_malformed_yaml_names_line_and_column(tmp_path: Path, yaml: str, place: str) -> None:
    assert _message(tmp_path, yaml).startswith(f"my_run.yaml, {place}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / 'x.yaml'}: no such configuration file.")):
        load_config(tmp_path / "x.yaml")


def test_a_folder_or_a_binary_file_is_not_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"\xff\xfe\x00\x01")
    for path in (tmp_path, tmp_path / "model"):
        with pytest.raises(ConfigError, match="cannot be read as a configuration file"):
            load_config(path)


def test_a_required_key_that_is_unset_is_named() -> None:
    with pytest.raises(ConfigError, match="train_path: required here but not set"):
        Config().require("lr", "train_path")
