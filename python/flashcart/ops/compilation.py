"""What torch.compile is told about functions of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_to_compiler(function: Function) -> Function:
    """Make torch.compile call a function of plain constants once and keep its result, not look inside.

    It is torch.compiler.assume_constant_result without what that imports: torch._dynamo, a second or more, and sympy.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
