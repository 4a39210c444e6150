"""Compile the default model's kernels without a GPU: seconds, registers, spills.

    python benchmarks/kernel_compile.py [--targets sm_90 sm_80 gfx942] [--phases inference training] [--only 9x16x17]

The contractions are those that the default model evaluates in each phase. Registers and stack bytes are read from the
compiled code (cuobjdump of Triton's wheel); a stack is where spilled registers go. `planned` is the plan's own count of
registers; seconds are those of one core. Prints a table, and with --output stores it.
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
from flashcart.ops import triton_backend
from flashcart.ops.compile_ahead import Target, Task, compile_task
from flashcart.ops.kernel_cache import contraction_of_key

TARGETS = {
    "sm_80": Target("cuda", 80, 32),
    "sm_90": Target("cuda", 90, 32),
    "gfx942": Target("hip", "gfx942", 64),
}
HEADINGS = "contraction kernel order    operands             rank ranks           block    sec  reg (planned) stack"


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

    keys = dict.fromkeys(key for phase in options.phases for key in contractions_of_model(ModelConfig(("H",)), phase))
    table: dict[str, object] = {}
    for name in options.targets:
        rows = []
        print(f"{name}\n{HEADINGS}")
        for key in keys:
            if options.only and operands_of(key) not in options.only:
                continue
            for r in compile_one(key, name, options.channels, getattr(torch, options.dtype)):
                rows.append(r)
                print(
                    f"{r['contraction']} {r['name']:9} {r['order']:8} {r['operands']:20} {r['input_rank']!s:4} "
                    f"{r['ranks']!s:15} {r['block']:4} {r['seconds']:6.2f} {r['registers']:4} ({r['planned']}) "
                    f"{r['stack']:5}",
                    flush=True,
                )
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
