"""The optimiser and its schedule, the same for both trainers: every figure by hand."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from drv_env import DrvError, SettingError
from trainers.optimiser import clipped_step, make_optimiser, set_rate
from trainers.optimiser_settings import OptimiserSettings, schedule
from trainers.rl_config import RLConfig
from trainers.run_folder import RunFolder
from trainers.runs.config_files import apply_settings
from trainers.runs.run_config import RLRun
from trainers.runs.running import STATE, refuse_other_run, resolved
from trainers.sft import SFTConfig
from trainers.training_state import StateFolder


class Layer(nn.Module):
    """A matrix, a bias, and the scale of a norm, all of them ones; and something frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(1, 2))
        self.bias = nn.Parameter(torch.ones(2))
        self.norm = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


def given(layer, value):
    for each in layer.parameters():
        each.grad = torch.full_like(each, value)


# ---- the schedule ------------------------------------------------------------------------------


def test_the_schedule_rises_and_falls():
    factors = [schedule(step, 10, 3) for step in range(1, 11)]
    assert factors[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert all(a > b for a, b in itertools.pairwise(factors[2:]))
    assert factors[-1] > 0


def test_schedules_have_their_shapes():
    cosine = [schedule(step, 10, 2, "cosine") for step in range(1, 11)]
    assert cosine[:2] == [0.5, 1.0]
    assert all(a > b > 0 for a, b in itertools.pairwise(cosine[1:]))
    assert cosine[-1] < schedule(10, 10, 2)
    assert [schedule(step, 4, 2, "constant") for step in range(1, 5)] == [0.5, 1, 1, 1]
    assert schedule(1, 10, 0) == schedule(1, 10, 0, "cosine") == 1.0


def test_a_warm_up_by_share_takes_the_place_of_steps():
    settings = OptimiserSettings(warmup_steps=20, warmup_share=0.1)
    assert [settings.warmup(steps) for steps in (9, 10, 59, 586)] == [0, 1, 5, 58]
    assert OptimiserSettings(warmup_steps=20).warmup(59) == 20


def test_rates_of_cosine_after_a_tenth_by_hand():
    settings = OptimiserSettings(learning_rate=1e-5, schedule="cosine", warmup_share=0.1)
    rates = [settings.rate(step, 20) for step in range(1, 21)]
    assert rates[:2] == pytest.approx([0.5e-5, 1e-5])
    # eighteen steps are left of nineteen: (1 − cos(18/19 π)) / 2 = (1 + cos(π/19)) / 2
    assert rates[2] == pytest.approx(1e-5 * (1 + math.cos(math.pi / 19)) / 2)
    assert rates[-1] == pytest.approx(1e-5 * (1 - math.cos(math.pi / 19)) / 2)


@pytest.mark.parametrize(
    ("settings", "follows"),
    [
        ({}, False),
        ({"warmup_steps": 3}, False),
        ({"warmup_share": 0.0}, True),
        ({"schedule": "linear"}, True),
        ({"schedule": "cosine"}, True),
    ],
)
def test_whether_a_rate_depends_on_the_number_of_steps(settings, follows):
    found = OptimiserSettings(**settings)
    assert found.follows_steps == follows
    assert (found.rate(2, 10) != found.rate(2, 100)) <= follows


# ---- AdamW -------------------------------------------------------------------------------------


def test_two_steps_of_adamw_by_hand():
    settings = OptimiserSettings(
        learning_rate=0.1, betas=(0.9, 0.95), weight_decay=0.01, max_grad_norm=1e9
    )
    layer = Layer()
    optimiser = make_optimiser(layer, settings)
    given(layer, 0.5)
    clipped_step(optimiser, settings, "the test")
    # the averages without their bias are 0.5 and 0.5², so the step is the rate itself
    first = 1 * (1 - 0.1 * 0.01) - 0.1
    assert layer.matrix.tolist()[0] == pytest.approx([first, first])
    given(layer, -1.0)
    assert set_rate(optimiser, OptimiserSettings(learning_rate=0.02), 1, 1) == 0.02
    clipped_step(optimiser, settings, "the test")
    mean = (0.9 * 0.1 * 0.5 + 0.1 * -1.0) / (1 - 0.9**2)
    square = (0.95 * 0.05 * 0.25 + 0.05 * 1.0) / (1 - 0.95**2)
    second = first * (1 - 0.02 * 0.01) - 0.02 * mean / math.sqrt(square)
    assert layer.matrix.tolist()[0] == pytest.approx([second, second])


def test_biases_and_norms_decay_as_matrices_do_and_what_is_frozen_does_not():
    settings = OptimiserSettings(learning_rate=0.1, weight_decay=0.5)
    layer = Layer()
    optimiser = make_optimiser(layer, settings)
    given(layer, 0.0)
    clipped_step(optimiser, settings, "the test")
    for each in (layer.matrix, layer.bias, layer.norm):
        torch.testing.assert_close(each.detach(), torch.full_like(each, 1 - 0.1 * 0.5))
    assert torch.equal(layer.frozen, torch.ones(2))


def test_gradients_are_clipped_to_a_norm_and_the_norm_before_is_told():
    settings = OptimiserSettings(max_grad_norm=1.0)
    layer = Layer()
    optimiser = make_optimiser(layer, settings)
    given(layer, 0.0)
    layer.matrix.grad = torch.tensor([[3.0, 4.0]])
    assert float(clipped_step(optimiser, settings, "the test")) == pytest.approx(5.0)
    assert layer.matrix.grad.tolist()[0] == pytest.approx([0.6, 0.8])


def test_a_gradient_that_is_no_number_leaves_the_weights():
    layer = Layer()
    optimiser = make_optimiser(layer, OptimiserSettings())
    given(layer, math.nan)
    with pytest.raises(DrvError, match="the gradient of the test is nan"):
        clipped_step(optimiser, OptimiserSettings(), "the test")
    assert torch.equal(layer.matrix, torch.ones(1, 2))


@pytest.mark.parametrize(
    ("schedule", "refused"),
    [
        ({}, False),
        ({"warmup_steps": 2}, False),
        ({"warmup_share": 0.1}, True),
        ({"schedule": "linear"}, True),
    ],
)
def test_a_run_is_made_longer_only_where_its_rates_stay_what_they_were(tmp_path, schedule, refused):
    settings = {"out": tmp_path / "run", "rl": {"steps": 5, **schedule}}
    run = apply_settings(RLRun(), settings, "the test")
    RunFolder(run.out, resolved(run, "grpo"), None).close()
    layer = Layer()
    StateFolder(run.out / STATE).save(1, layer, make_optimiser(layer, run.rl))
    refuse_other_run(run, "grpo")
    longer = replace(run, rl=replace(run.rl, steps=9))
    if not refused:
        refuse_other_run(longer, "grpo")
        return
    with pytest.raises(SettingError, match=r"rl\.steps: 5 there, 9 here"):
        refuse_other_run(longer, "grpo")


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SFTConfig, RLConfig])
@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"learning_rate": math.inf},
        {"schedule": "square"},
        {"warmup_steps": -1},
        {"warmup_share": 1.5},
        {"warmup_share": math.nan},
        {"betas": (0.9, 1.0)},
        {"betas": (-0.1, 0.9)},
        {"weight_decay": -0.1},
        {"weight_decay": math.inf},
        {"max_grad_norm": 0.0},
    ],
    ids=lambda wrong: "-".join(f"{name}={value}" for name, value in wrong.items()),
)
def test_both_trainers_refuse_what_cannot_work(kind, wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        kind(**wrong)


def test_values_at_the_edge_work():
    edges = OptimiserSettings(
        warmup_share=1.0, betas=(0.0, 0.0), weight_decay=0.0, max_grad_norm=math.inf
    )
    assert edges.warmup(7) == 7
    assert OptimiserSettings(warmup_share=0.0).warmup(7) == 0
