"""Each FLASHCART_* variable of the kernels changes the plan as documented, and results only by rounding."""

import pytest
import torch

from flashcart import environment
from flashcart.algebra.lowering import make
from flashcart.emit.triton_source import variant_of
from flashcart.errors import UserError
from flashcart.ir.contraction import Contraction
from flashcart.ir.differentiate import vjp
from flashcart.ir.launch_plan import plan_launches, split_of
from flashcart.ir.requests import ProductRequest, Weights
from flashcart.nn import TensorProduct
from flashcart.ops import triton_backend
from flashcart.ops.kernel_cache import key_of

N_NODES, N_EDGES, CHANNELS = 3, 8, 2


def orders(ranks=(1, 2, 2)) -> dict[str, Contraction]:
    forward = make(ProductRequest(*ranks, True, False, Weights.ROW, False))
    backward = vjp(forward, (0, 1, 2), (0,))
    return {"forward": forward, "backward": backward, "second": vjp(backward, (0, 1, 2, 3), (0, 1, 2))}


@pytest.fixture
def variables(monkeypatch):
    """Set variables for the code of this process as if it had started with them."""

    def set_variables(**values: str) -> None:
        read = environment.parse_environment({f"FLASHCART_{name}": value for name, value in values.items()})
        monkeypatch.setattr(triton_backend, "read_environment", lambda: read)

    return set_variables


def groups(program: Contraction) -> list[tuple[int, ...]]:
    """Output ranks of each launch, equal neighbours once."""
    ranks = [launch.ranks for launch in plan_launches(program, triton_backend.settings())]
    return [r for i, r in enumerate(ranks) if i == 0 or ranks[i - 1] != r]


def results(program: Contraction) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = {"row": N_EDGES, "sender": N_NODES, "receiver": N_NODES, "shared": 1}
    operands = [
        torch.randn(
            sizes[o.index.value],
            o.components,
            *([CHANNELS] if o.channels else []),
            dtype=torch.float64,
            generator=generator,
        )
        for o in program.inputs
    ]
    ends = torch.randint(0, N_NODES, (2, N_EDGES), generator=generator)
    return triton_backend.evaluate(key_of(program), operands, ends[0], ends[1], N_NODES)


def assert_same_numbers(first: list[torch.Tensor], second: list[torch.Tensor]) -> None:
    for a, b in zip(first, second, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


# variable, value, order of the derivative that it concerns
NUMBERS = [
    ("TP_SCATTER_KERNEL", "edge", "backward"),
    ("TP_CSR_GROUP_BUDGET", "9", "forward"),
    ("TP_BWD_GROUP_BUDGET", "9", "backward"),
    ("TP_DBWD_GROUP_BUDGET", "9", "second"),
    ("TP_BWD_CSR_MIN_DEG", "1", "backward"),
    ("TP_BWD_CSR_SLOTS", "3", "backward"),
    ("TP_BWD_SPLIT", "full", "backward"),
    ("TP_DBWD_SPLIT", "full", "second"),
    ("TP_PEAK_AWARE_GROUPS", "false", "forward"),
    ("TP_SPLIT_INPUT_RANK", "false", "forward"),
    ("DETERMINISTIC", "1", "backward"),
]


@pytest.mark.usefixtures("triton_interpreter")
@pytest.mark.parametrize(("name", "value", "order"), NUMBERS, ids=[entry[0] for entry in NUMBERS])
def test_a_variable_changes_numbers_by_rounding_only(name, value, order, variables):
    program = orders((1, 1, 2))[order]
    variables()
    default = results(program)
    variables(**{name: value})
    assert_same_numbers(results(program), default)


def test_scatter_kernel_chooses_the_walk(variables):
    variables()
    assert variant_of(orders()["forward"], triton_backend.settings()) == "csr"
    variables(TP_SCATTER_KERNEL="edge")
    assert variant_of(orders()["forward"], triton_backend.settings()) == "edge"


@pytest.mark.parametrize(
    ("name", "order"),
    [("TP_CSR_GROUP_BUDGET", "forward"), ("TP_BWD_GROUP_BUDGET", "backward"), ("TP_DBWD_GROUP_BUDGET", "second")],
)
def test_a_budget_groups_output_ranks_of_its_own_order_only(name, order, variables):
    programs = orders((2, 3, 3))  # 43 components of ranks 0 to 2, 28 of rank 3
    variables(TP_DBWD_GROUP_BUDGET="100")
    assert all(groups(program) == [(0, 1, 2, 3)] for program in programs.values())
    variables(**{"TP_DBWD_GROUP_BUDGET": "100", name: "45"})
    for key, program in programs.items():
        assert groups(program) == ([(0, 1, 2), (3,)] if key == order else [(0, 1, 2, 3)])


def test_the_second_budget_defaults_to_half_the_smaller(variables):
    variables(TP_CSR_GROUP_BUDGET="61")
    assert triton_backend.settings().second_budget == 30
    variables()
    assert triton_backend.settings().second_budget == 50
    assert groups(orders((2, 3, 3))["second"]) == [(0, 1, 2), (3,)]


def test_split_second_derivatives_use_the_budget_of_the_first(variables):
    variables(TP_DBWD_SPLIT="full")
    assert groups(orders((2, 3, 3))["second"]) == [(0, 1, 2, 3)]


def slots_at(degree: float, order: str = "backward") -> int:
    return triton_backend.slots_of(orders()[order], degree)


def test_from_the_least_degree_on_the_backward_is_split_into_groups_of_edges(variables):
    variables()
    assert slots_at(63.9) == 1
    assert slots_at(64) > 1
    assert slots_at(256) > slots_at(64)
    assert slots_at(256, "forward") == slots_at(256, "second") == 1
    variables(TP_BWD_CSR_MIN_DEG="300")
    assert slots_at(256) == 1


def test_the_number_of_groups_of_edges_can_be_set(variables):
    variables(TP_BWD_CSR_SLOTS="5")
    assert slots_at(10) == 5
    variables(TP_BWD_CSR_SLOTS="1")
    assert slots_at(1000) == 1


@pytest.mark.parametrize(("name", "order"), [("TP_BWD_SPLIT", "backward"), ("TP_DBWD_SPLIT", "second")])
def test_full_gives_outputs_their_own_launches(name, order, variables):
    program = orders()[order]
    variables(**{name: "fused"})
    fused = plan_launches(program, triton_backend.settings())
    variables(**{name: "full"})
    split = plan_launches(program, triton_backend.settings())
    assert all(len(launch.outputs) > 1 for launch in fused)
    assert all(len(launch.outputs) == 1 for launch in split)


def test_unset_splits_follow_rank_and_variant(variables):
    variables()
    assert split_of(orders((1, 2, 2))["second"], triton_backend.settings()) == "fused"
    assert split_of(orders((1, 3, 3))["second"], triton_backend.settings()) == "fused"
    variables(TP_SCATTER_KERNEL="edge")
    assert split_of(orders((1, 3, 3))["second"], triton_backend.settings()) == "full"


def test_budgets_grow_to_the_largest_rank_unless_told_not_to(variables):
    program = orders((2, 3, 3))["forward"]  # 3, 15, 25 and 28 components of ranks 0 to 3
    variables(TP_CSR_GROUP_BUDGET="4")
    assert groups(program) == [(0, 1), (2,), (3,)]
    variables(TP_CSR_GROUP_BUDGET="4", TP_PEAK_AWARE_GROUPS="false")
    assert groups(program) == [(0,), (1,), (2,), (3,)]


def test_input_ranks_get_their_own_launches_unless_told_not_to(variables):
    variables()
    assert [launch.input_rank for launch in plan_launches(orders()["forward"], triton_backend.settings())] == [0, 1]
    variables(TP_SPLIT_INPUT_RANK="0")
    assert [launch.input_rank for launch in plan_launches(orders()["forward"], triton_backend.settings())] == [None]


def test_deterministic_walks_by_receiver_whatever_the_scatter_kernel(variables):
    variables(DETERMINISTIC="1", TP_SCATTER_KERNEL="edge")
    assert variant_of(orders()["backward"], triton_backend.settings()) == "csr"


@pytest.mark.usefixtures("triton_interpreter")
def test_the_rank_limit_is_that_of_the_variable(variables):
    product = TensorProduct(2, 1, 2, channels=2, backend="triton")
    variables(KERNEL_L_MAX="1")
    with pytest.raises(UserError, match="FLASHCART_KERNEL_L_MAX=1"):
        product(torch.randn(3, 9, 2), torch.randn(3, 4))
    variables()
    assert product(torch.randn(3, 9, 2), torch.randn(3, 4)).shape[0] == 3
