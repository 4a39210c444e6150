"""Keys of flashcart-profile: defaults, fallbacks, the generated file, sentences."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from flashcart.config import Config, describe_keys, load_config, load_keys
from flashcart.config_profile import ProfileConfig, profile_yaml
from flashcart.errors import ConfigError

PROFILE_YAML = Path(__file__).parents[1] / "python" / "flashcart" / "configs" / "profile.yaml"


def test_profile_yaml_is_the_text_generated_from_the_dataclass() -> None:
    assert PROFILE_YAML.read_text(encoding="utf-8") == profile_yaml()


def test_profile_yaml_loads_as_the_defaults() -> None:
    assert load_keys(ProfileConfig, PROFILE_YAML) == ProfileConfig() == load_keys(ProfileConfig)


def test_documented_defaults() -> None:
    config = ProfileConfig()
    own = {entry.name: getattr(config, entry.name) for entry in fields(ProfileConfig)}
    for entry in fields(Config):
        del own[entry.name]
    assert own == {
        "profile_phase": "both",
        "profile_data_path": None,
        "profile_train_path": None,
        "profile_batch_size": 64,
        "profile_train_batch_size": None,
        "profile_n_batches": 1,
        "profile_warmup": 1,
        "profile_repeat": 1,
        "profile_row_limit": 40,
        "profile_dynamic_batching": False,
        "profile_pre_fit": True,
        "profile_memory": False,
        "profile_record_shapes": False,
        "profile_with_stack": False,
        "profile_trace_dir": None,
        "profile_compile_predict": False,
        "profile_compile_mode": "reduce-overhead",
        "profile_compile_fullgraph": True,
        "profile_checkpoint": None,
        "profile_dtype": None,
        "profile_launch_plan": False,
        "profile_json": None,
        "profile_sweep": None,
    }


def test_training_keys_and_profiling_keys_stand_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("r_max: 4.0\nprofile_phase: training\nprofile_data_path: a.xyz\n", encoding="utf-8")
    config = load_keys(ProfileConfig, path, ["profile_batch_size=3"])
    assert (config.r_max, config.phases, config.batch_size("training")) == (4.0, ("training",), 3)
    assert config.profile_data_path == tmp_path / "a.xyz"


def test_written_configuration_loads_as_the_same_one(tmp_path: Path) -> None:
    config = load_keys(
        ProfileConfig, None, ["profile_sweep=[{A_B: [1, 2]}, {lr: 0.1, hidden_radial: [[8]]}]", "lr=1e-3"]
    )
    (tmp_path / "run.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert load_keys(ProfileConfig, tmp_path / "run.yaml") == config


def test_help_names_every_key() -> None:
    text = describe_keys(ProfileConfig)
    assert all(f"  {entry.name}: " in text for entry in fields(ProfileConfig))
    assert "profile_" not in describe_keys()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("profile_batchsize=3", "profile_batchsize: unknown key in the override 'profile_batchsize=3', did you mean"),
        ("profile_phase=all", "got 'all' in the override 'profile_phase=all', allowed: both, inference, training."),
        ("profile_repeat=0", "allowed: an integer >= 1."),
        ("profile_warmup=-1", "allowed: an integer >= 0."),
        ("profile_compile_mode=fast", "allowed: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs."),
        ("profile_dtype=half", "allowed: float32, float64, or ~."),
    ],
)
def test_wrong_keys_and_values_are_sentences(override: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_keys(ProfileConfig, None, [override])
    assert sentence in str(caught.value)


def test_training_does_not_know_the_keys_of_profiling() -> None:
    with pytest.raises(ConfigError, match="profile_phase: unknown key"):
        load_config(None, ["profile_phase=both"])
