"""The FLASHCART_* variables: defaults, parsing, and the sentences for bad values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashcart.environment import describe_variables, parse_environment, set_allocator_default
from flashcart.errors import EnvironmentVariableError


def test_defaults_are_those_of_the_documented_table() -> None:
    environment = parse_environment({})
    assert environment.kernel_l_max == 3
    assert environment.tp_scatter_kernel == "csr"
    assert (environment.tp_csr_group_budget, environment.tp_bwd_group_budget) == (100, 100)
    assert environment.tp_dbwd_group_budget == 50
    assert environment.tp_bwd_csr_min_deg == 64
    assert environment.tp_bwd_csr_slots is None
    assert environment.tp_bwd_split is None
    assert environment.tp_dbwd_split is None
    assert environment.tp_peak_aware_groups
    assert environment.tp_split_input_rank
    assert not environment.deterministic
    assert environment.cache_dir == Path("~/.cache/flashcart").expanduser()


@pytest.mark.parametrize("word", ["1", "true", "YES", "t", "True"])
def test_true_words_of_any_case_are_true(word: str) -> None:
    assert parse_environment({"FLASHCART_DETERMINISTIC": word}).deterministic


@pytest.mark.parametrize("word", ["0", "false", "no", "", "on", "2"])
def test_every_other_word_is_false(word: str) -> None:
    assert not parse_environment({"FLASHCART_TP_PEAK_AWARE_GROUPS": word}).tp_peak_aware_groups


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("FLASHCART_KERNEL_L_MAX", "abc", "an integer of at least 0"),
        ("FLASHCART_KERNEL_L_MAX", "-1", "an integer of at least 0"),
        ("FLASHCART_KERNEL_L_MAX", "", "an integer of at least 0"),
        ("FLASHCART_TP_CSR_GROUP_BUDGET", "1.5", "an integer of at least 1"),
        ("FLASHCART_TP_BWD_CSR_SLOTS", "0", "an integer from 1 to 1024"),
        ("FLASHCART_TP_SCATTER_KERNEL", "coo", "csr or edge"),
        ("FLASHCART_TP_DBWD_SPLIT", "half", "fused or full"),
        ("FLASHCART_CACHE_DIR", "", "the path of a folder"),
    ],
)
def test_bad_value_names_variable_value_and_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(EnvironmentVariableError) as caught:
        parse_environment({variable: value})
    assert str(caught.value) == f"{variable}={value!r} is not allowed; allowed: {allowed}."


@pytest.mark.parametrize("value", [0, 2, 9])
def test_any_kernel_rank_from_zero_on_is_accepted(value: int) -> None:
    assert parse_environment({"FLASHCART_KERNEL_L_MAX": str(value)}).kernel_l_max == value


def test_second_derivative_budget_is_half_the_smaller_budget_rounded_down() -> None:
    variables = {"FLASHCART_TP_CSR_GROUP_BUDGET": "200", "FLASHCART_TP_BWD_GROUP_BUDGET": "31"}
    assert parse_environment(variables).tp_dbwd_group_budget == 15
    assert parse_environment(variables | {"FLASHCART_TP_DBWD_GROUP_BUDGET": "7"}).tp_dbwd_group_budget == 7


def test_cache_folder_follows_xdg_unless_that_is_relative() -> None:
    assert parse_environment({"XDG_CACHE_HOME": "/some where"}).cache_dir == Path("/some where/flashcart")
    assert parse_environment({"XDG_CACHE_HOME": "x"}).cache_dir == Path("~/.cache/flashcart").expanduser()
    assert parse_environment({"FLASHCART_CACHE_DIR": "~/k"}).cache_dir == Path("~/k").expanduser()


def test_a_home_that_nobody_has_is_a_sentence() -> None:
    with pytest.raises(EnvironmentVariableError, match=r"FLASHCART_CACHE_DIR='~nobody-at-all/x' is not allowed"):
        parse_environment({"FLASHCART_CACHE_DIR": "~nobody-at-all/x"})


def test_without_a_home_the_default_is_below_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with an arbitrary user: kernel_cache then takes a temporary folder."""

    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    assert parse_environment({}).cache_dir == Path("/.cache/flashcart")


@pytest.mark.parametrize("value", ["0", "1025", "100000000000000000000"])
def test_groups_of_edges_are_at_most_1024(value: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=r"SLOTS='\d+' .* from 1 to 1024"):
        parse_environment({"FLASHCART_TP_BWD_CSR_SLOTS": value})


def test_documentation_lists_every_variable_once() -> None:
    names = [name for name, _, _ in describe_variables()]
    assert len(names) == len(set(names)) == 15
    assert all(name.startswith("FLASHCART_") for name in names)


@pytest.mark.parametrize("variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_allocator_set_by_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv(variable, "max_split_size_mb:64")
    set_allocator_default()
    assert os.environ[variable] == "max_split_size_mb:64"
    assert len({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} & set(os.environ)) == 1


def test_allocator_default_is_expandable_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "to be removed again when the test ends")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    assert set_allocator_default() is None
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"


def test_allocator_is_left_alone_and_said_so_once_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        class cuda:
            @staticmethod
            def is_initialized() -> bool:
                return True

    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert "keeps its settings" in str(set_allocator_default())
    assert "PYTORCH_CUDA_ALLOC_CONF" not in os.environ


def test_light_modules_import_neither_torch_nor_numpy_nor_sympy() -> None:
    code = (
        "import sys, flashcart, flashcart.errors, flashcart.device, flashcart.environment, flashcart.config;"
        "print([m for m in ('torch', 'numpy', 'sympy', 'ase') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
