"""Lines and tables for people."""

from __future__ import annotations

from flashcart.profiling.operations import OperationRow
from flashcart.profiling.report import operation_table, rate, table


def row(name: str, **changes) -> OperationRow:
    values = dict.fromkeys(("self_cpu", "cpu", "self_device", "device"), 0.0) | {"calls": 1, "shapes": "", "stack": ()}
    return OperationRow(name=name, **(values | {"cpu_bytes": 0, "device_bytes": 0} | changes))


def test_columns_are_aligned():
    assert table(["a", "number"], [["long name", "1"], ["b", "22"]]) == (
        "a          number\nlong name       1\nb              22"
    )


def test_columns_of_the_gpu_appear_with_its_times():
    assert "GPU" not in operation_table([row("aten::mm", cpu=1e-3)], 10, False)
    text = operation_table([row("aten::mm", device=2e-3)], 10, False)
    assert "GPU ms" in text
    assert "2.000" in text


def test_stacks_show_the_innermost_line_of_this_package():
    stack = (
        "/x/site-packages/torch/nn/functional.py(3): linear",
        "/y/flashcart/profiling/operations.py(1): hook",
        "/y/flashcart/nn/mixing.py(12): forward",
        "z.py(1): f",
    )
    head, *lines = operation_table(
        [row("aten::mm", stack=stack), row("b", stack=stack[:1]), row("c")], 10, False
    ).split("\n")
    assert head.endswith("called from")
    assert lines[0].endswith(" nn/mixing.py(12): forward")
    assert lines[1].endswith(" torch/nn/functional.py(3): linear")


def test_rates_keep_whole_numbers():
    assert [rate(value) for value in (12644.3, 1000.2, 999.96, 0.01234)] == ["12644", "1000", "1000", "0.01234"]


def test_rows_are_limited_and_long_names_cut():
    text = operation_table([row("x" * 100), row("second")], 1, False)
    assert text.splitlines()[1].split()[0] == "x" * 67 + "..."
    assert "second" not in text
