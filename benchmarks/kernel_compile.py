"""Compile the default model's kernels without a GPU: seconds, registers, spills.

    python benchmarks/kernel_compile.py [--targets sm_90 sm_80 gfx942] [--phases inference training] [--only 9x16x17]

The contractions are those that the default model evaluates in each phase. Registers and stack bytes are read from the
compiled code (cuobjdump of Triton's wheel); a stack is where spilled registers go. `planned` is the plan's own count of
registers; seconds are those of one core. Linear maps share kernels: each stands with the first contraction that needs
it, once per candidate tile. Prints a table, and with --output stores it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="kernel-compile-"))

import torch

from flashcart.emit.triton_source import block_of
from flashcart.ir.launch_plan import order_of, plan_launches
from flashcart.model_kernels import contractions_of_model
from flashcart.ops import triton_backend, triton_linear
from flashcart.ops.compile_ahead import Target, Task, compile_task, distinct_pieces
from flashcart.ops.kernel_cache import contraction_of_key

TARGETS = {
    "sm_80": Target("cuda", 80, 32),
    "sm_90": Target("cuda", 90, 32),
    "gfx942": Target("hip", "gfx942", 64),
}
HEADINGS = "contraction kernel   order    operands             rank ranks           block      sec  reg (planned) stack"


def resources(kernel) -> tuple[int, int]:
    """Registers and stack bytes of a kernel compiled for CUDA; (0, 0) elsewhere."""
    if "cubin" not in kernel.asm:
        return 0, 0
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+).*? LOCAL:(\d+)", text)
    assert found, text
    return int(found[1]), int(found[2]) + int(found[3])


def operands_of(key: str) -> str:
    """Components of the operands of a contraction."""
    return "x".join(str(o.components) for o in contraction_of_key(key).inputs)


def compile_one(key: str, name: str, channels: int, dtype: torch.dtype) -> list[dict[str, object]]:
    """Compile all launches of a contraction for one target; a row per kernel."""
    program, rows = contraction_of_key(key), []
    chosen, item_size = triton_backend.settings(), dtype.itemsize
    module = triton_backend.load(key, chosen, item_size)
    launch = triton_backend._launch

    def timed(call, entry, buffers, written):
        start = sum(os.times()[:4])
        launch(call, entry, buffers, written)
        rows.append({"name": entry["name"], "seconds": round(sum(os.times()[:4]) - start, 2)})

    triton_backend._launch = timed
    try:
        compile_task(Task(key, channels, str(dtype).removeprefix("torch."), TARGETS[name]))
    finally:
        triton_backend._launch = launch
    target = TARGETS[name]
    for row, planned in zip(rows, plan_launches(program, chosen), strict=True):
        caches = getattr(module, row["name"]).device_caches
        kernel = next(iter(caches[f"{target.backend}-{target.arch}"][0].values()))
        registers, stack = resources(kernel)
        block = block_of(program, planned, chosen, item_size)
        row.update(
            contraction=key[:8],
            order=order_of(program).value,
            operands=operands_of(key),
            input_rank=planned.input_rank,
            ranks=planned.ranks,
            block=block.channels,
            registers=registers,
            planned=block.registers,
            stack=stack,
        )
    return rows


def show(r: dict[str, object]) -> dict[str, object]:
    """Print a row; return it."""
    print(
        f"{r['contraction']} {r['name']:11} {r['order']:8} {r['operands']:20} {r['input_rank']!s:4} {r['ranks']!s:15} "
        f"{r['block']!s:7} {r['seconds']:6.2f} {r['registers']:4} ({r['planned']}) {r['stack']:5}",
        flush=True,
    )
    return r


def compile_linear(task: Task, number: int, name: str) -> dict[str, object]:
    """Compile one kernel of a linear map; its row."""
    start = sum(os.times()[:4])
    compile_task(task, number)
    seconds = round(sum(os.times()[:4]) - start, 2)
    item_size = getattr(torch, task.dtype).itemsize
    kernel, tile = triton_linear.piece_kernel(task.key, task.channels, item_size, number)
    target = TARGETS[name]
    compiled = list(kernel.device_caches[f"{target.backend}-{target.arch}"][0].values())[-1]
    registers, stack = resources(compiled)
    return {
        "name": kernel.__name__,
        "seconds": seconds,
        "contraction": task.key[:8],
        "order": order_of(contraction_of_key(task.key)).value,
        "operands": operands_of(task.key),
        "input_rank": None,
        "ranks": (),
        "block": f"{tile.rows}x{tile.channels}",
        "registers": registers,
        "planned": None,
        "stack": stack,
    }


def main() -> None:
    """Compile, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--phases", nargs="*", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--only", nargs="*", help="components of the operands, as in the table")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    from flashcart.model import ModelConfig

    found = dict.fromkeys(key for phase in options.phases for key in contractions_of_model(ModelConfig(("H",)), phase))
    keys = [key for key in found if not options.only or operands_of(key) in options.only]
    table: dict[str, object] = {}
    for name in options.targets:
        rows = []
        print(f"{name}\n{HEADINGS}")
        for key in keys:
            if not contraction_of_key(key).mixes_channels:
                new = compile_one(key, name, options.channels, getattr(torch, options.dtype))
                rows += [show(row) for row in new]
        maps = [key for key in keys if contraction_of_key(key).mixes_channels]
        for task, number in distinct_pieces(
            [Task(key, options.channels, options.dtype, TARGETS[name]) for key in maps]
        ):
            rows.append(show(compile_linear(task, number, name)))
        total = sum(r["seconds"] for r in rows)
        print(f"{name}: {len(rows)} kernels, {total:.1f} s, {sum(bool(r['stack']) for r in rows)} with a stack\n")
        table[name] = {"seconds": round(total, 1), "kernels": rows}
    if options.output:
        import triton

        versions = {"triton": triton.__version__, "torch": torch.__version__, "dtype": options.dtype}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({**versions, **table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
