"""Every link, anchor and path that the documentation names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, anchors, name_of, prose

FOLDERS = ("python/", "lammps_plugin/", "tests/", "docs/", "examples/", "benchmarks/", "configs/", ".ci/")
MADE_BY_COMMANDS = ("docs/_build", "benchmarks/results")
PACKAGE = ROOT / "python" / "flashcart"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.is_file(), f"{name_of(page)}: {target} leads nowhere"
        assert not anchor or anchor in anchors(other), f"{name_of(page)}: {target} names no heading of {path}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_link_has_empty_text(page: Path) -> None:
    assert "[](" not in prose(page)  # Sphinx would fill it in, other readers show nothing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_in_the_text_exist(page: Path) -> None:
    for path in re.findall(r"`([\w./-]+)`", prose(page)):
        if path.startswith(FOLDERS) and not path.startswith(MADE_BY_COMMANDS):
            assert (ROOT / path).exists() or (PACKAGE / path).exists(), f"{name_of(page)}: {path} does not exist"


def map_rows() -> list[tuple[str, str, str]]:
    """The rows of CONTRIBUTING's map."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## The map")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:2] == "| "]
    return [(what, edit, test) for what, edit, test in rows[1:]]


@pytest.mark.parametrize(("what", "edit", "test"), map_rows())
def test_the_map_names_files_to_edit_and_tests_that_exist(what: str, edit: str, test: str) -> None:
    edited = re.findall(r"`([^`]+)`", edit)
    assert edited, what
    for path in edited:
        assert (ROOT / path).exists() or (PACKAGE / path).exists(), f"{what}: {path} does not exist"
    for path in re.findall(r"`([^`]+)`", test):
        assert path.startswith("make ") or (ROOT / path).exists(), f"{what}: {path} does not exist"


def test_the_map_covers_every_folder_of_the_package() -> None:
    named = {path for _, edit, _ in map_rows() for path in re.findall(r"`([^`]+)`", edit)}
    folders = {str(path.relative_to(PACKAGE).parent) for path in PACKAGE.rglob("*.py")} - {".", "lib"}
    assert folders <= {str(Path(path).parent) for path in named}
