"""Whole runs of OpenRLHF on a CPU: Ray, DeepSpeed, the real vLLM, and our episodes.

What only CUDA has is replaced by ``cpu_machine/``.  A run is made once and looked at by
several tests; order and sampling differ from run to run, so properties are tested.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from replay.documents import RowSettings
from replay.token_store import TokenStore
from replay.token_writer import write_documents
from replay.trajectory import Trajectory
from tests.cluster.openrlhf.cloned_agent import GAME
from tests.cluster.openrlhf.openrlhf_runs import (
    GROUP,
    STEPS,
    TASKS_A_STEP,
    Ran,
    carry_out,
    reinforce,
)
from trainers.advantages import GRPO
from trainers.agent_file import read_agent
from trainers.checkpoint import load_model
from trainers.information_gain import score_with_model
from trainers.openrlhf.run import Cluster, FineTuning, OpenRLHFRun
from trainers.sft import SFTConfig

# ---- (a) fine-tuning -----------------------------------------------------------------------------


def test_fine_tuning_learns_the_agents_tokens(agent, tmp_path):
    rows = tmp_path / "rows"
    write_documents(agent.expert[:1], rows, lambda: agent.template, RowSettings())
    config = SFTConfig(
        epochs=4,
        batch_size=2,
        warmup_steps=0,
        schedule="constant",
        learning_rate=1e-3,
        precision="bfloat16",
    )
    described = {"rules": {"max_turns": 5}}
    run = OpenRLHFRun(
        model=agent.folder,
        out=tmp_path / "run",
        fine_tuning=FineTuning(config=config, rows=rows, agent=described),
        cluster=Cluster(flags=("--ds.attn_implementation", "eager")),
    )
    carry_out(run)
    first, second = Ran(run, agent).metrics("sft")
    before = nll(load_model(agent.folder, "bfloat16"), rows)
    assert first["loss"] == pytest.approx(before, abs=0.02)  # the agent's tokens and no others
    assert second["loss"] < first["loss"]
    assert nll(load_model(run.final, "bfloat16"), rows) < second["loss"]
    assert first["learning_rate"] == pytest.approx(1e-3)
    assert first["grad_norm"] > 0
    assert read_agent(run.final) == {**described, "sampling": {}, "offline": {}, "questions": {}}


def nll(model: Any, rows: Path) -> float:
    total, count = 0.0, 0
    for document in TokenStore(rows):
        ids = torch.tensor(document.ids, dtype=torch.long)[None]
        with torch.no_grad():
            found = model(ids).logits[0, :-1].float().log_softmax(-1)
        picked = found.gather(-1, ids[0, 1:, None])[:, 0]
        mask = torch.tensor(document.mask[1:])
        total -= float(picked[mask].sum())
        count += int(mask.sum())
    return total / count


# ---- (b) IGPO, (c) GRPO -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def igpo(agent, tmp_path_factory) -> Ran:
    return reinforce(agent, tmp_path_factory.mktemp("igpo"))


@pytest.fixture(scope="module")
def grpo(agent, tmp_path_factory) -> Ran:
    # with a penalty, for so small an agent hardly ever answers right, and all alike is no signal
    credit = replace(GRPO, format_penalty=1.0, penalty_alone=True, outcome_weight_final=0.5)
    return reinforce(agent, tmp_path_factory.mktemp("grpo"), credit=credit)


@pytest.fixture(params=["igpo", "grpo"])
def ran(request: pytest.FixtureRequest) -> Ran:
    found: Ran = request.getfixturevalue(request.param)
    return found


def test_both_steps_have_finite_figures_by_our_names(ran):
    steps = ran.metrics()
    assert [each["step"] for each in steps] == [1, 2]
    for each in steps:
        for name in ("loss", "kl", "clip_share", "grad_norm", "success", "turns", "well_formed"):
            assert np.isfinite(each[name]), name
        assert each["grad_norm"] > 0
        assert each["staleness"] == 0
    assert [each["weight_version"] for each in steps] == [1, 2]


def test_weights_that_move_are_those_of_the_step(grpo):
    assert [each["outcome_weight"] for each in grpo.metrics()] == [0.75, 0.5]


def test_every_engine_had_the_models_weights_after_each_transfer(ran):
    assert [each["syncs_compared"] for each in ran.metrics()] == [1, 2]


def test_rollouts_are_whole_groups_of_our_episodes(ran):
    for step in (1, 2):
        found = ran.trajectories(step)
        assert len(found) == TASKS_A_STEP * GROUP
        assert not any(item.broken for item in found)
        for start in range(0, len(found), GROUP):
            assert len({item.task.id for item in found[start : start + GROUP]}) == 1
        for item in found:
            assert len(item.transcript) <= GAME.rules["max_context"]
            assert all(turn.tokens <= GAME.rules["max_turn_tokens"] for turn in item.turns)
        assert {v for item in found for v in item.transcript.weight_versions} == {step - 1}


def test_the_next_rollout_samples_from_the_new_weights(ran):
    new, old = ran.model(2), ran.model(1)
    found = ran.trajectories(2)
    assert difference(found, new, ran) < 0.02  # bfloat16 twice, in another order
    assert difference(found, old, ran) > 5 * difference(found, new, ran)


def difference(found: list[Trajectory], model: Any, ran: Ran) -> float:
    """Mean distance of vLLM's log-probs of what it sampled from our packed scorer's."""
    scores = score_with_model(found, model, ran.agent.template)
    pairs = [
        (np.concatenate(item.transcript.log_probs), np.concatenate(own))
        for item, own in zip(found, scores.log_probs, strict=True)
    ]
    ours = np.concatenate([own for _, own in pairs])
    sampled = np.concatenate([known for known, _ in pairs])
    return float(np.abs(sampled - ours).mean())


def test_the_actors_gains_are_our_packed_scorers(igpo):
    for step in (1, 2):
        found = igpo.trajectories(step)
        own = score_with_model(found, igpo.model(step), igpo.agent.template).trajectories
        theirs, ours = gains(found), gains(own)
        assert len(theirs) > 5
        assert [gain is None for gain in theirs] == [gain is None for gain in ours]
        np.testing.assert_allclose(
            [gain for gain in theirs if gain is not None],
            [gain for gain in ours if gain is not None],
            atol=1e-2,
        )


def test_without_gains_nothing_is_scored(grpo):
    assert set(gains(grpo.trajectories(1))) == {None}
    assert "information_gain" not in grpo.metrics()[0]


def gains(found: list[Trajectory]) -> list[float | None]:
    return [reward.information_gain for item in found for reward in item.rewards]


def test_the_checkpoint_plays_by_itself(ran):
    final = ran.run.final
    assert (final / "chat_template.jinja").is_file()
    described = read_agent(final)
    assert described["rules"]["max_turns"] == GAME.rules["max_turns"]
    assert described["offline"]["worlds"] == GAME.worlds
    model, last = load_model(final, "bfloat16"), ran.model(STEPS + 1)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, last.get_parameter(name)), name
    assert not torch.equal(model.lm_head.weight, ran.model(1).lm_head.weight)
    assert model.config.use_cache
