"""The loop on the tiny game: gains, updates, and what it refuses."""

import copy
import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

from agents.engines.base import Sampling
from agents.engines.transformers import TransformersEngine
from agents.vector_rollout import rollout_agents, rollout_vector
from drv_env import ENV_ID, FormatPenalty, InformationGainReward, SettingError, background
from drv_env.env import DeepResearchEnv
from drv_env.errors import DrvError, EngineError
from replay.probe import answer_probe
from replay.sft_rows import transcribe
from replay.transcript import Transcript
from trainers.advantages import GRPO, IGPO, Advantages, advantages_of, turn_values
from trainers.information_gain import GainSettings, with_gains
from trainers.learnt import LearntRollout
from trainers.loss_settings import LossSettings
from trainers.model_setup import (
    LoRASettings,
    ModelSettings,
    engine_weights,
    merged,
    prepare_model,
)
from trainers.registry import ADVANTAGES
from trainers.rl import RLConfig, train_rl
from trainers.rows import Row
from trainers.update import update_policy


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """The model is too small to be shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def policy(tiny_game):
    """A model whose gains are of the size of those that a trained one has."""
    return tiny_game.telling_model()


@pytest.fixture
def engine(tiny_game, policy):
    """Plays a script with the policy's log-probs: what is sampled is decided."""
    made = tiny_game.engine(policy)
    yield made
    background.run(made.close())


def sampling(game, tokens=24) -> Sampling:
    return Sampling(tokens, stop_ids=game.template.stop_ids)


class EngineScorer:
    """A model as the env's scorer, for the wrapper."""

    def __init__(self, engine, template):
        self.engine, self.template = engine, template

    def score(self, messages, answer, transcript=None):
        own = Transcript(self.template)
        own.prompt(messages[:1])
        for message in messages[1:]:
            if message["role"] == "assistant":
                own.completion(self.template.encode_turn(message["content"]))
            else:
                own.observation(message["content"])
        probe = answer_probe(self.template, answer)
        ids = np.concatenate([own.ids, probe.ids])
        span = (len(own.ids) + probe.answer_start, len(ids))
        return float(np.mean(background.run(self.engine.score(ids, [span]))[0]))


def test_trainer_and_wrapper_give_the_same_gains(tiny_game, engine):
    """The expert's episodes once through the env's wrapper, once from their transcripts."""
    game = tiny_game.envs.unwrapped.game
    env = InformationGainReward(
        DeepResearchEnv(
            game.tasks, game.tools, rules=dataclasses.replace(game.rules, max_context=None)
        ),
        EngineScorer(engine, tiny_game.template),
    )
    compared = 0
    for trajectory in tiny_game.expert[:6]:
        played = dataclasses.replace(
            trajectory, transcript=transcribe(trajectory, tiny_game.template)
        )
        (scored,) = with_gains([played], engine, tiny_game.template)
        env.reset(options={"task": trajectory.task})
        for turn, expected in zip(trajectory.turns, scored.rewards, strict=True):
            _, reward, _, _, info = env.step(turn.text)
            found = info["turn_reward"].information_gain
            if expected.information_gain is None:
                assert found is None
                continue
            compared += 1
            assert found == pytest.approx(expected.information_gain, abs=1e-4)
            assert reward == pytest.approx(expected.information_gain, abs=1e-4)
    assert compared >= 6


class Careless:
    """Plays recorded turns, and says something behind the calls of some of them."""

    def __init__(self, texts, spoilt):
        self._texts = iter(
            text + " Now." if index in spoilt else text for index, text in enumerate(texts)
        )

    def act(self, observation: str) -> str:
        return next(self._texts)


def test_trainer_and_wrappers_give_the_same_penalties(tiny_game, engine):
    """Turns with something behind the call: searches, visits and answers, each once or more."""
    game = tiny_game.envs.unwrapped.game
    rules = dataclasses.replace(game.rules, max_context=None)
    envs = gymnasium.make_vec(
        ENV_ID, num_envs=1, tasks=tiny_game.tasks, tools=game.tools, rules=rules
    )
    scorer = EngineScorer(engine, tiny_game.template)
    env = FormatPenalty(
        InformationGainReward(DeepResearchEnv(game.tasks, game.tools, rules=rules), scorer), 0.5
    )
    credit = dataclasses.replace(IGPO, format_penalty=0.5)
    penalised = set()
    for index, trajectory in enumerate(tiny_game.expert[:8]):
        texts = [turn.text for turn in trajectory.turns]
        spoilt = {index % len(texts), len(texts) - 1 - index % 2}
        (played,) = rollout_agents(
            envs, lambda task, of=(texts, spoilt): Careless(*of), [trajectory.task]
        )
        transcript = transcribe(played, tiny_game.template)
        (scored,) = with_gains(
            [dataclasses.replace(played, transcript=transcript)], engine, tiny_game.template
        )
        env.reset(options={"task": trajectory.task})
        for turn, value in zip(scored.turns, turn_values(scored.rewards, credit), strict=True):
            _, reward, _, _, info = env.step(turn.text)
            assert reward == pytest.approx(0.0 if value is None else value, abs=1e-4)
            assert info["penalised"] == (not turn.well_formed)
            if info["penalised"]:
                penalised.add(turn.action)
    assert penalised >= {"search", "visit", "answer"}


def test_old_log_probs_are_those_of_the_trainer(tiny_game, policy):
    from trainers.log_probs import token_log_probs
    from trainers.rows import pad_rows

    engine = TransformersEngine(copy.deepcopy(policy), slots=16, max_context=512)
    found = rollout_vector(
        tiny_game.envs, engine, tiny_game.template, tiny_game.tasks[:8], sampling(tiny_game)
    )
    background.run(engine.close())
    rows = [Row(item.transcript.ids, item.transcript.mask()) for item in found]
    with torch.no_grad():
        mine, _ = token_log_probs(policy, *pad_rows(rows))
    sampled = np.concatenate([p for item in found for p in item.transcript.log_probs])
    np.testing.assert_allclose(mine.numpy(), sampled, atol=1e-4)


def test_igpo_runs_with_gains_and_finite_losses(tiny_game, policy, engine):
    model = copy.deepcopy(policy)
    before = [parameter.clone() for parameter in model.parameters()]
    config = RLConfig(
        steps=2, tasks_per_step=4, group_size=4, minibatches=2, sampling=sampling(tiny_game)
    )
    seen = []
    train_rl(
        model, engine, tiny_game.envs, tiny_game.template, tiny_game.tasks, config, seen.append
    )
    assert [step.step for step in seen] == [1, 2]
    assert all(np.isfinite(step.metrics["loss"]) for step in seen)
    visits = [[turn.action for turn in item.turns].count("visit") for item in seen[0].trajectories]
    assert seen[0].metrics["scored_turns"] == sum(visits) > 4
    gains = [
        reward.information_gain
        for step in seen
        for item in step.trajectories
        for reward in item.rewards
        if reward.information_gain is not None
    ]
    assert np.abs(gains).max() > 0.1
    assert any(
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    )
    assert engine.weight_version == 3
    versions = {v for item in seen[1].trajectories for v in item.transcript.weight_versions}
    assert versions == {2}
    ids = seen[0].trajectories[0].transcript.ids
    (found,) = background.run(engine.score(ids, [(1, len(ids))]))
    np.testing.assert_allclose(found, log_probs_of(model, ids), atol=1e-5)


def log_probs_of(model, ids):
    """Of every id but the first, from one plain pass."""
    tokens = torch.from_numpy(np.asarray(ids, np.int64))[None]
    with torch.no_grad():
        logits = model(tokens).logits[0, :-1].log_softmax(-1)
    return logits.gather(-1, tokens[0, 1:, None])[:, 0].numpy()


def test_grpo_computes_no_gains(tiny_game, policy, engine):
    config = RLConfig(
        credit=GRPO, steps=1, tasks_per_step=2, group_size=4, sampling=sampling(tiny_game)
    )
    seen = []
    train_rl(
        copy.deepcopy(policy),
        engine,
        tiny_game.envs,
        tiny_game.template,
        tiny_game.tasks,
        config,
        seen.append,
    )
    assert seen[0].metrics["scored_turns"] == 0
    assert "information_gain" not in seen[0].metrics


def test_a_run_is_fixed_by_its_seed(tiny_game, policy):
    results = []
    for _ in range(2):
        engine = tiny_game.engine(policy)
        model = copy.deepcopy(policy)
        config = RLConfig(steps=2, tasks_per_step=4, group_size=4, sampling=sampling(tiny_game))
        train_rl(model, engine, tiny_game.envs, tiny_game.template, tiny_game.tasks, config)
        background.run(engine.close())
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(results[0], results[1], atol=0, rtol=0)


@pytest.mark.parametrize(
    "loss",
    [
        LossSettings(aggregation="token_mean", kl_weight=0.1, importance_cap=2.0),
        LossSettings(aggregation="constant", constant_tokens=120, kl_estimator="k2", kl_weight=0.1),
    ],
)
def test_every_kind_of_loss_trains(tiny_game, policy, engine, loss):
    config = RLConfig(
        credit=dataclasses.replace(IGPO, assignment="turn", penalty_alone=True),
        loss=loss,
        drop_silent="none",
        steps=2,
        tasks_per_step=2,
        group_size=4,
        minibatches=1,
        sampling=sampling(tiny_game),
    )
    model = copy.deepcopy(policy)
    steps = train_rl(model, engine, tiny_game.envs, tiny_game.template, tiny_game.tasks, config)
    assert all(np.isfinite(value) for step in steps for value in step.metrics.values())
    # before the first update the model is its own reference
    assert steps[0].metrics["reference_kl"] == pytest.approx(0.0, abs=1e-6)
    assert steps[1].metrics["reference_kl"] > 1e-6
    assert all(step.metrics["dropped_rollouts"] == 0 for step in steps)
    if loss.importance_cap is not None:
        assert steps[0].metrics["importance"] == pytest.approx(1.0, abs=1e-3)
        assert steps[0].metrics["importance_capped"] == 0.0


class Losing:
    """An engine that is lost to every seventh request."""

    def __init__(self, engine):
        self._engine, self._requests = engine, 0

    def __getattr__(self, name):
        return getattr(self._engine, name)

    async def generate(self, ids, sampling, **more):
        self._requests += 1
        if self._requests % 7 == 0:
            raise EngineError("lost")
        return await self._engine.generate(ids, sampling, **more)


def test_broken_episodes_are_in_no_statistic(tiny_game, policy, engine):
    config = RLConfig(steps=1, tasks_per_step=4, group_size=4, sampling=sampling(tiny_game))
    seen = []
    train_rl(
        copy.deepcopy(policy),
        Losing(engine),
        tiny_game.envs,
        tiny_game.template,
        tiny_game.tasks,
        config,
        seen.append,
    )
    (step,) = seen
    whole = [(index // 4, item) for index, item in enumerate(step.trajectories) if not item.broken]
    assert 0 < len(whole) < 16
    expected = advantages_of(
        [item.rewards for _, item in whole], [group for group, _ in whole], config.credit
    )
    assert step.metrics["ig_scale"] == expected.ig_scale
    assert step.metrics["silent_groups"] == len(expected.silent_groups) / 4
    assert step.metrics["dropped_rollouts"] == expected.silent.sum()
    assert step.metrics["broken"] == 16 - len(whole)


@pytest.mark.parametrize("drop", ["rollouts", "groups", "none"])
def test_what_has_no_signal_is_dropped_or_kept(tiny_game, policy, engine, drop):
    config = RLConfig(
        steps=1, tasks_per_step=8, group_size=4, drop_silent=drop, sampling=sampling(tiny_game)
    )
    seen = []
    train_rl(
        copy.deepcopy(policy),
        engine,
        tiny_game.envs,
        tiny_game.template,
        tiny_game.tasks,
        config,
        seen.append,
    )
    (step,) = seen
    found = advantages_of(
        [item.rewards for item in step.trajectories], [index // 4 for index in range(32)], IGPO
    )
    expected = {"rollouts": found.silent.sum(), "groups": 4 * len(found.silent_groups), "none": 0}
    assert expected["rollouts"] > expected["groups"] > 0
    assert step.metrics["dropped_rollouts"] == expected[drop]


def test_other_samplings_are_refused(tiny_game):
    with pytest.raises(SettingError, match="temperature 1"):
        RLConfig(sampling=Sampling(8, temperature=0.7))
    with pytest.raises(SettingError, match="group_size"):
        RLConfig(sampling=Sampling(8), group_size=1)
    with pytest.raises(SettingError, match="drop_silent"):
        RLConfig(sampling=Sampling(8), drop_silent="all")


def test_gain_settings_are_checked():
    with pytest.raises(SettingError, match="kind"):
        GainSettings(kind="ratio")
    with pytest.raises(SettingError, match="tools"):
        GainSettings(tools=())


def one_step(tiny_game, model, **settings):
    """One step of 4 groups from ``model``'s rollouts: its metrics, and the parameters after."""
    engine = tiny_game.engine(model)
    trained = copy.deepcopy(model)
    config = RLConfig(steps=1, tasks_per_step=4, group_size=4, **settings)
    seen = []
    try:
        train_rl(
            trained,
            engine,
            tiny_game.envs,
            tiny_game.template,
            tiny_game.tasks,
            config,
            seen.append,
        )
    finally:
        background.run(engine.close())
    return seen[0], torch.cat([each.detach().flatten() for each in trained.parameters()])


def test_the_update_does_not_depend_on_the_microbatches(tiny_game, policy):
    results = [
        one_step(tiny_game, policy, microbatch_tokens=most, sampling=sampling(tiny_game))
        for most in (1, 300, 100_000)
    ]
    first, expected = results[0]
    for step, parameters in results[1:]:
        for name in ("loss", "kl", "entropy", "clip_share", "grad_norm"):
            assert step.metrics[name] == pytest.approx(first.metrics[name], abs=1e-4)
        torch.testing.assert_close(parameters, expected, atol=2e-3, rtol=0)


def test_the_model_and_the_engine_score_the_same_gains(tiny_game, policy):
    gains = []
    for gain_by in ("model", "engine"):
        step, _ = one_step(tiny_game, policy, gain_by=gain_by)
        gains.append(
            [reward.information_gain for item in step.trajectories for reward in item.rewards]
        )
    assert sum(gain is not None for gain in gains[0]) >= 4
    for one, other in zip(*gains, strict=True):
        assert one == (None if other is None else pytest.approx(other, abs=1e-4))
    with pytest.raises(SettingError, match="gain_by"):
        RLConfig(gain_by="judge", sampling=sampling(tiny_game))


def test_the_update_does_not_depend_on_packing(tiny_game, policy):
    padded, expected = one_step(tiny_game, policy)
    for most in (300, 100_000):
        packed, found = one_step(tiny_game, policy, packed=True, microbatch_tokens=most)
        for name in ("loss", "kl", "entropy", "clip_share", "grad_norm"):
            assert packed.metrics[name] == pytest.approx(padded.metrics[name], abs=1e-4)
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


def test_bfloat16_goes_nearly_the_same_way(tiny_game, policy):
    whole, expected = one_step(tiny_game, policy)
    half, found = one_step(tiny_game, policy, precision="bfloat16")
    assert half.trajectories[0].turns == whole.trajectories[0].turns
    assert half.metrics["grad_norm"] == pytest.approx(whole.metrics["grad_norm"], rel=0.1)
    assert half.metrics["information_gain"] == pytest.approx(
        whole.metrics["information_gain"], abs=0.05
    )
    start = torch.cat([each.detach().flatten() for each in policy.parameters()])
    cosine = torch.nn.functional.cosine_similarity(found - start, expected - start, dim=0)
    assert float(cosine) > 0.9


def test_adapters_are_trained_and_the_engine_gets_them_merged(tiny_game, policy):
    model = prepare_model(copy.deepcopy(policy), ModelSettings(lora=LoRASettings(rank=4)))
    before = {name: each.clone() for name, each in model.named_parameters()}
    engine = tiny_game.engine(policy)
    config = RLConfig(
        steps=2,
        tasks_per_step=4,
        group_size=4,
        learning_rate=0.05,
        loss=LossSettings(importance_cap=2.0),
    )
    seen = []
    train_rl(
        model, engine, tiny_game.envs, tiny_game.template, tiny_game.tasks, config, seen.append
    )
    for name, each in model.named_parameters():
        if each.requires_grad:
            assert "lora_" in name
        else:
            assert torch.equal(each, before[name])
    ids = seen[-1].trajectories[0].transcript.ids
    (found,) = background.run(engine.score(ids, [(1, len(ids))]))
    background.run(engine.close())
    np.testing.assert_allclose(found, log_probs_of(model, ids), atol=1e-3)
    merged_names = set(engine_weights(model))
    assert merged_names == set(policy.state_dict())
    plain = merged(model).state_dict()
    for name, tensor in engine_weights(model).items():
        torch.testing.assert_close(tensor, plain[name], atol=1e-6, rtol=1e-6)
    assert engine_weights(policy) is policy


def test_the_usual_sampling_is_what_the_rules_allow(tiny_game, policy, engine):
    config = RLConfig(steps=1, tasks_per_step=2, group_size=2)
    game = (tiny_game.envs, tiny_game.template, tiny_game.tasks)
    train_rl(copy.deepcopy(policy), engine, *game, config)
    assert engine.samplings
    assert set(engine.samplings) == {sampling(tiny_game)}


def test_a_way_to_advantages_of_ones_own(tiny_game, policy):
    asked = []

    @ADVANTAGES.register("longer_is_worse")
    def longer_is_worse(trajectories, groups, config):
        asked.append((len(trajectories), list(groups), config.group_size))
        return Advantages.of(
            [-np.arange(1.0, len(item.turns) + 1) for item in trajectories], groups
        )

    step, found = one_step(tiny_game, policy, advantages="longer_is_worse", minibatches=1)
    assert asked == [(16, [index // 4 for index in range(16)], 4)]
    assert step.metrics["silent_groups"] == 0.0
    assert step.metrics["ig_scale"] == 1.0
    start = torch.cat([each.detach().flatten() for each in policy.parameters()])
    assert not torch.equal(found, start)
    with pytest.raises(SettingError, match=r"no way to advantages 'nobody'.*longer_is_worse"):
        one_step(tiny_game, policy, advantages="nobody")
    with pytest.raises(SettingError, match="this package's"):
        ADVANTAGES.register("credit")(longer_is_worse)
    assert ADVANTAGES.register("longer_is_worse")(len) is ADVANTAGES["longer_is_worse"]  # again


def test_advantages_of_numbers_know_what_is_silent():
    zeros, ones = np.zeros(2), np.ones(3)
    found = Advantages.of([zeros, ones, zeros, zeros], ["a", "a", "b", "b"])
    assert found.silent.tolist() == [True, False, True, True]
    assert found.silent_groups == ("b",)


def test_a_gradient_that_is_no_number_never_gets_into_the_weights(tiny_game, policy):
    model = copy.deepcopy(policy)
    with torch.no_grad():
        next(model.parameters())[:] = float("nan")
    before = [each.clone() for each in model.parameters()][1:]
    rollouts = []
    for item in tiny_game.expert[:4]:
        transcript = transcribe(item, tiny_game.template)
        row = Row(transcript.ids, transcript.mask())
        each = np.ones(int(row.mask.sum()), np.float32)
        rollouts.append(LearntRollout(transcript, row, advantages=each, sampled=-each))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    with pytest.raises(DrvError, match="gradient of an update is nan"):
        update_policy(model, optimiser, rollouts, RLConfig(), np.random.default_rng(0))
    for each, old in zip(list(model.parameters())[1:], before, strict=True):
        assert torch.equal(each, old)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"credit": GRPO, "loss": LossSettings(importance_cap=2.0)}, r"rl\.scoring to plain"),
        ({"credit": GRPO, "packed": True}, r"sliding_window.*set packed to False"),
        ({}, r"rl\.scoring to plain"),
    ],
)
def test_what_a_model_cannot_do_is_refused_before_anything_is_played(tiny_game, engine, more, said):
    config = copy.deepcopy(tiny_game.model().config)
    config.use_sliding_window, config.sliding_window = True, 4
    kinds = ["sliding_attention"] + ["full_attention"] * (config.num_hidden_layers - 1)
    config.layer_types = kinds
    model = type(tiny_game.model())(config)
    version = engine.weight_version
    settings = RLConfig(steps=1, tasks_per_step=1, group_size=2, **more)
    with pytest.raises(SettingError, match=said):
        train_rl(model, engine, tiny_game.envs, tiny_game.template, tiny_game.tasks, settings)
    assert engine.weight_version == version
