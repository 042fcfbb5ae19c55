"""The game of invented webs at a small size, and the phases of learning it, as functions.

The demo and ``benchmarks/learning.py`` are made of these: a scripted expert plays, a fresh
small model learns to copy, is cloned from the expert and trained by reinforcement on its
own rollouts, and is evaluated on questions whose entities start no question in training.
Everything follows from the seeds.  Nothing here prints, or writes files.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import gymnasium
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from agents.engines.base import Engine, Sampling
from agents.engines.transformers import TransformersEngine
from agents.rollout import RolloutSettings
from agents.vector_rollout import OnTurns, VectorEnv, rollout_agents, rollout_vector
from drv_env import ENV_ID
from drv_env.episode import Rules
from drv_env.tasks import Task
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Expert, WorldRecipe
from replay.chat_templates import QWEN3_THINKING
from replay.counter import TemplateCounter
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.agent_file import Agent, agent_of
from trainers.rl import RLConfig, RLStep, train_rl
from trainers.rows import Row
from trainers.sft import SFTConfig, SFTStep, train_sft
from trainers.small_world_config import WorldSettings
from trainers.tiny import IM_END, TinySize, build_model, build_tokenizer
from trainers.warmup import CopyConfig, warm_up_copying
from trainers.world_questions import drawn, game_random, world_parts

PARALLEL = 64
"""Episodes at once."""
_SHOWN: Mapping[str, Any] = {"results": 1, "fields": ("url",), "evidence_words": 8}
"""What the tools show: little, for a small context."""
_VOCABULARY_FROM = 500
"""Of how many trajectories the tokenizer is made."""

HeldOut = Literal["validation", "test"]


class SmallWorld:
    """Webs, their questions, and the game as the expert and a model play it.

    Attributes:
        settings: what it was made from.
        recipes: of the webs.
        train: questions to learn from, in random order.
        rules: of an episode, but for the model's budget of tokens.
    """

    def __init__(self, settings: WorldSettings) -> None:
        self.settings = settings
        first = 1000 * settings.seed
        self.recipes = [WorldRecipe(first + number) for number in range(settings.worlds)]
        self._rng = game_random(settings.seed)
        self._parts = world_parts(
            [recipe.seed for recipe in self.recipes],
            settings.hops,
            self._rng if settings.balanced else None,
        )
        self.train: list[Task] = self._rng.sample(self._parts["train"], len(self._parts["train"]))
        self.tools = OfflineTools(self.recipes, **_SHOWN)
        self.rules = Rules(system_prompt="", max_turns=settings.max_turns)

    def held_out(self, part: HeldOut, count: int) -> list[Task]:
        """So many questions of a held-out part, always the same.

        Raises:
            SettingError: when there are not so many.
        """
        called = f"the number of {part} questions"
        return drawn(self._parts[part], count, self.settings.seed, called)

    def expert_trajectories(
        self, count: int, on_turns: OnTurns = lambda over, playing: None
    ) -> list[Trajectory]:
        """The expert's episodes on random training questions."""
        seed = self.settings.seed
        rng = random.Random(f"expert-{seed}")
        worlds = {recipe.name: recipe.build() for recipe in self.recipes}
        return rollout_agents(
            self._envs(self.rules),
            lambda task: Expert(task, worlds[str(task.world)], rng, self.settings.noise),
            rng.choices(self.train, k=count),
            {"agent": "expert", "seed": seed},
            on_turns,
        )

    def tokenizer_for(self, expert: Sequence[Trajectory]) -> Tokenizer:
        """A tokenizer in which every name is one token, made from what the expert saw."""
        texts = [
            text
            for item in expert[:_VOCABULARY_FROM]
            for turn in item.turns
            for text in (turn.text, turn.observation or "")
        ]
        questions = [item.task.question for item in expert[:_VOCABULARY_FROM]]
        return build_tokenizer([*questions, *texts], self.recipes[0].build().kinds)

    def played_with(self, tokenizer: Tokenizer) -> ModelGame:
        """The game as a model with this tokenizer plays it."""
        return ModelGame(self, tokenizer)

    def _envs(self, rules: Rules, counter: TemplateCounter | None = None) -> VectorEnv:
        return gymnasium.make_vec(
            ENV_ID,
            num_envs=PARALLEL,
            tasks=self.train,
            tools=self.tools,
            rules=rules,
            counter=counter,
        )


class ModelGame:
    """A small world as models with one tokenizer play it.

    Attributes:
        world: the webs and questions.
        tokenizer: of the models.
        template: how messages become ids.
    """

    def __init__(self, world: SmallWorld, tokenizer: Tokenizer) -> None:
        self.world, self.tokenizer = world, tokenizer
        self.template = ChatTemplate(tokenizer, QWEN3_THINKING, {"eos_token": IM_END})

    @cached_property
    def envs(self) -> VectorEnv:
        """Envs to play in, :data:`PARALLEL` at once."""
        bounded = dataclasses.replace(
            self.world.rules,
            max_context=self.world.settings.context,
            max_turn_tokens=self.world.settings.turn_tokens,
        )
        return self.world._envs(bounded, TemplateCounter(self.template))

    def new_model(self, seed: int) -> PreTrainedModel:
        """A model that has learnt nothing."""
        size = TinySize(context=self.world.settings.context)
        return build_model(self.tokenizer, seed, size)

    def engine(self, model: PreTrainedModel, seed: int) -> TransformersEngine:
        """An engine with a copy of the model's weights."""
        return TransformersEngine(
            copy.deepcopy(model),
            slots=PARALLEL,
            max_context=self.world.settings.context,
            seed=seed,
        )

    def sampling(self, temperature: float = 1.0) -> Sampling:
        """How a turn is sampled; temperature 0 is greedy."""
        return Sampling(
            self.world.settings.turn_tokens,
            temperature=temperature,
            stop_ids=self.template.stop_ids,
        )

    def play(
        self,
        engine: Engine,
        tasks: Sequence[Task],
        temperature: float = 1.0,
        label: Mapping[str, Any] | None = None,
        on_turns: OnTurns = lambda over, playing: None,
        seed: int | None = None,
    ) -> list[Trajectory]:
        """One episode of every task; see :func:`agents.vector_rollout.rollout_vector`."""
        sampling = self.sampling(temperature)
        return rollout_vector(
            self.envs, engine, self.template, tasks, sampling, label, on_turns, seed=seed
        )

    def described(self, **asked: Any) -> Agent:
        """How the model plays, for whoever plays it later; see :mod:`trainers.agent_file`.

        Args:
            asked: ``count`` and ``part`` of the questions that it is evaluated on.
        """
        rules = {
            "system_prompt": self.world.rules.system_prompt,
            "max_turns": self.world.rules.max_turns,
            "max_context": self.world.settings.context,
            "max_turn_tokens": self.world.settings.turn_tokens,
        }
        worlds = tuple(recipe.seed for recipe in self.world.recipes)
        own = self.world.settings
        questions = {"hops": own.hops, "balanced": own.balanced, "seed": own.seed, **asked}
        return agent_of(rules, self.sampling(), {"worlds": worlds, **_SHOWN}, questions)

    def rl_config(self, seed: int, **settings: Any) -> RLConfig:
        """Settings of reinforcement in this game; ``settings`` are the others of RLConfig.

        Rollouts are seeded, and each episode goes at its own pace.  Gains are scored by the
        engine, whose cache still holds the histories.  Groups without any signal are left out
        of the updates, whatever the method; a rollout whose own advantage is zero counts.
        """
        return RLConfig(
            gain_by="engine",
            drop_silent="groups",
            sampling=self.sampling(),
            rollouts="async",
            rollout=RolloutSettings(seed=seed),
            seed=seed,
            **settings,
        )


# ---- phases ---------------------------------------------------------------------------


def warm_up(
    model: PreTrainedModel,
    game: ModelGame,
    config: CopyConfig,
    on_step: Callable[[int, float], None] = lambda step, accuracy: None,
) -> float:
    """Teach a fresh model to copy; the accuracy reached (:mod:`trainers.warmup`)."""
    return warm_up_copying(model, game.tokenizer.get_vocab_size(), config, on_step)


def clone(
    model: PreTrainedModel,
    game: ModelGame,
    expert: Sequence[Trajectory],
    config: SFTConfig,
    on_step: Callable[[SFTStep], None] = lambda step: None,
    weights: Sequence[float] | None = None,
    state: Path | None = None,
) -> list[SFTStep]:
    """Train the model in place on the expert's trajectories, each counted ``weights`` times.

    With a folder ``state`` the same call goes on where it was; see :func:`trainers.sft.train_sft`.
    """
    transcripts = [transcribe(trajectory, game.template) for trajectory in expert]
    rows = [Row(transcript.ids, transcript.mask()) for transcript in transcripts]
    return train_sft(model, rows, config, on_step, weights=weights, state=state)


def reinforce(
    model: PreTrainedModel,
    game: ModelGame,
    engine: Engine,
    config: RLConfig,
    on_step: Callable[[RLStep], None] = lambda step: None,
    tasks: Sequence[Task] | None = None,
    state: Path | None = None,
) -> list[RLStep]:
    """Train the model in place on its rollouts of training questions; None takes all of them.

    With a folder ``state`` the same call goes on where it was; see :func:`trainers.rl.train_rl`.
    """
    chosen = game.world.train if tasks is None else tasks
    return train_rl(model, engine, game.envs, game.template, chosen, config, on_step, state=state)
