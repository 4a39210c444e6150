"""The folder of generated files: damage, read-only folders, several processes, no sympy when warm."""

from __future__ import annotations

import importlib.util
import inspect
import os
import py_compile
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from flashcart.ir.contraction import parse
from flashcart.ir.requests import ExpansionRequest, request_name
from flashcart.ops import kernel_cache
from flashcart.ops.kernel_cache import read_checked, stored, write_checked

from ..programs import program_named

# Evaluates one product and prints its key, a checksum of the result, and whether sympy came along.
PROGRAM = """
import sys
import torch
from flashcart.nn import CartesianExpansion, TensorProduct
torch.manual_seed(0)
index = torch.tensor([0, 1, 1])
product = TensorProduct(l_in=1, l_edge=1, l_out=1, channels=2)
x, vectors = torch.randn(2, 4, 2).requires_grad_(), torch.randn(3, 3)
out = product(x, CartesianExpansion(1)(vectors), torch.ones(3, product.n_paths, 2), senders=index, receivers=index)
(gradient,) = torch.autograd.grad(out.square().sum(), x)
print(f"{float(out.square().sum()):.6f} {float(gradient.square().sum()):.6f} {'sympy' in sys.modules}")
"""

RESOLVE = """
import sys
from flashcart.ops.kernel_cache import contraction_of_key
print(*(contraction_of_key(key).key for key in sys.argv[1:]))
"""


def process(folder: Path, program: str = PROGRAM, *arguments: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "FLASHCART_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(running: subprocess.Popen[str]) -> str:
    out, err = running.communicate(timeout=100)
    assert running.returncode == 0, err
    return out.strip()


@pytest.fixture(scope="module")
def warm_folder(tmp_path_factory):
    """A cache folder that two processes filled at the same time, and what they printed."""
    folder = tmp_path_factory.mktemp("warm")
    both = [process(folder), process(folder)]
    return folder, [finish(running) for running in both]


def test_two_processes_may_fill_one_folder_at_once(warm_folder):
    folder, printed = warm_folder
    assert printed[0] == printed[1]
    assert printed[0].endswith("True")  # sympy was needed: the control of the next test
    assert not list(folder.rglob("*.part"))
    assert all(read_checked(path) is not None for path in folder.rglob("*.*") if path.is_file())


def test_a_warm_cache_needs_no_sympy_and_gives_the_same(warm_folder):
    folder, printed = warm_folder
    assert finish(process(folder)) == printed[0].replace("True", "False")


def test_keys_are_resolved_in_a_new_process(warm_folder):
    """Also the keys of what was asked for by request: a compiled graph holds nothing but the key."""
    folder, _ = warm_folder
    requested = [parse(read_checked(path)).key for path in (folder / "requests").iterdir()]
    keys = [*requested, *(path.stem for path in (folder / "contractions").iterdir())]
    assert len(requested) == 2
    assert len(set(keys)) > 2  # and the gradient
    assert finish(process(folder, RESOLVE, *keys)) == " ".join(keys)


def test_an_unknown_key_is_refused():
    with pytest.raises(KeyError, match="no contraction with key 0123"):
        kernel_cache.contraction_of_key("0123")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("1", "2", 1),
        lambda text: "",
        lambda text: text + "more\n",
        lambda text: text.replace("sha256", "sha512"),
    ],
    ids=["cut short", "changed", "empty", "longer", "no checksum"],
)
def test_damaged_file_is_made_again(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    made = []

    def make() -> str:
        made.append(1)
        return "line 1\nline 2\n"

    text, path = stored("folder/name.txt", make)
    assert stored("folder/name.txt", make) == (text, path)
    assert len(made) == 1
    path.write_text(damage(path.read_text()))
    assert stored("folder/name.txt", make) == (text, path)
    assert len(made) == 2
    assert read_checked(path) == text


def test_binary_rubbish_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    (tmp_path / "name.txt").write_bytes(b"\xff\xfe\x00")
    assert stored("name.txt", lambda: "good\n")[0] == "good\n"


def test_interrupted_writing_leaves_no_file(tmp_path, monkeypatch):
    def fail(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_checked(tmp_path / "name.txt", "text\n")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unwritable(tmp_path):
    """A folder that cannot be made, whoever runs the tests (also root): its parent is a file."""
    parent = tmp_path / "file"
    parent.write_text("not a folder")
    return parent / "cache"


def test_unwritable_folder_gives_a_temporary_one_with_one_warning(unwritable, monkeypatch):
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: unwritable)
    kernel_cache._temporary_folder.cache_clear()
    with pytest.warns(UserWarning, match="cannot be written; using .* Set FLASHCART_CACHE_DIR"):
        _, first = stored("one.txt", lambda: "one\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, second = stored("two.txt", lambda: "two\n")
    kernel_cache._temporary_folder.cache_clear()
    assert first.parent == second.parent
    assert read_checked(first) == "one\n"


def test_a_folder_that_is_only_read_gives_no_warning(tmp_path, monkeypatch):
    """A shared cache, complete, on a read-only disk."""
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    stored("name.txt", lambda: "text\n")

    def refuse(*arguments: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(kernel_cache, "write_checked", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stored("name.txt", lambda: "other\n")[0] == "text\n"


def test_modules_run_what_was_checked_and_no_bytecode(tmp_path, monkeypatch):
    """Python's bytecode has no checksum: neither rubbish nor another program beside the file may count."""
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    path = stored("one.py", lambda: "VALUE = 1\n")[1]
    bytecode = Path(importlib.util.cache_from_source(str(path)))
    other = tmp_path / "other.py"
    other.write_text("VALUE = 2\n")
    py_compile.compile(str(other), cfile=str(bytecode), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert kernel_cache.load_module("one.py", pytest.fail).VALUE == 1
    bytecode.write_bytes(bytecode.read_bytes()[:20])
    module = kernel_cache.load_module("one.py", pytest.fail)
    assert module.VALUE == 1
    assert module.__file__ == str(path)


def test_sources_of_functions_are_found(tmp_path, monkeypatch):
    """Triton reads the source of a kernel by Python's own means."""
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    module = kernel_cache.load_module("two.py", lambda: "def f():\n    return 2\n")
    assert inspect.getsource(module.f) == "def f():\n    return 2\n"


def test_others_may_read_files_if_the_umask_lets_them(tmp_path):
    before = os.umask(0o027)
    try:
        write_checked(tmp_path / "name.txt", "text\n")
    finally:
        os.umask(before)
    assert (tmp_path / "name.txt").stat().st_mode & 0o777 == 0o640


def test_a_request_with_another_content_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "cache_folder", lambda: tmp_path)
    program = program_named("rows")
    request = ExpansionRequest(1)
    name = f"requests/{request_name(request)}-{kernel_cache.generator_hash()}.txt"
    write_checked(tmp_path / name, "of an older format\n")
    assert kernel_cache.contraction_of_request(request, lambda: program) == program
    assert read_checked(tmp_path / name) == program.text


def test_process_works_with_an_unwritable_folder(unwritable, warm_folder):
    running = process(unwritable)
    out, err = running.communicate(timeout=100)
    assert running.returncode == 0, err
    assert out.strip() == warm_folder[1][0]
    assert err.count("cannot be written") == 1


def test_keys_name_contractions_within_a_process():
    program = program_named("rows")
    assert kernel_cache.contraction_of_key(kernel_cache.key_of(program)) == program


def test_generator_hash_is_short_and_stable():
    assert kernel_cache.generator_hash() == kernel_cache.generator_hash()
    assert len(kernel_cache.generator_hash()) == 12


def test_tests_leave_the_cache_of_the_user_alone(request):
    assert kernel_cache.cache_folder() == request.getfixturevalue("kernel_cache")
