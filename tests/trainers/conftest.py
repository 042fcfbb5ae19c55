"""A tiny game with a tiny model, made once."""

import copy
import random
from dataclasses import dataclass

import gymnasium
import pytest
import torch

from agents.vector_rollout import VectorEnv, rollout_agents
from drv_env import ENV_ID, Rules, Task
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Expert, Noise, WorldRecipe, questions
from replay.chat_templates import QWEN3_THINKING
from replay.counter import TemplateCounter
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from tests.trainers.decided_engine import DecidedEngine, Script, right_and_wrong
from trainers.tiny import IM_END, TinySize, build_model, build_tokenizer

SIZE = TinySize(hidden=32, heads=2, kv_heads=1, head_dim=16, feed_forward=64, context=512)


@dataclass
class TinyGame:
    tasks: list[Task]
    expert: list[Trajectory]
    template: ChatTemplate
    envs: VectorEnv
    script: Script

    def model(self, seed: int = 0):
        return build_model(self.template.pieces.tokenizer, seed, SIZE)

    def telling_model(self, seed: int = 0):
        """One that has learnt nothing, with weights so large that what it reads matters."""
        model = self.model(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(5.0)
        return model

    def engine(self, model, **settings) -> DecidedEngine:
        """Plays :attr:`script`; owns a copy of the model."""
        settings = {"slots": 16, "max_context": 512, "seed": 5} | settings
        return DecidedEngine(
            copy.deepcopy(model), script=self.script, template=self.template, **settings
        )


def make_tiny_game() -> TinyGame:
    recipe = WorldRecipe(11)
    world = recipe.build()
    tasks = questions(world, hops=(1, 2))
    tools = OfflineTools([recipe], results=1, fields=("url",), evidence_words=8)
    rules = Rules(system_prompt="", max_turns=5)
    rng = random.Random(0)
    plain = gymnasium.make_vec(ENV_ID, num_envs=16, tasks=tasks, tools=tools, rules=rules)
    chosen = rng.sample(tasks, 48)
    expert = rollout_agents(plain, lambda task: Expert(task, world, rng, Noise()), chosen)
    texts = [text for item in expert for turn in item.turns for text in (turn.text,)]
    tokenizer = build_tokenizer(texts, world.kinds)
    template = ChatTemplate(tokenizer, QWEN3_THINKING, {"eos_token": IM_END})
    bounded = Rules(system_prompt="", max_turns=5, max_context=512, max_turn_tokens=24)
    envs = gymnasium.make_vec(
        ENV_ID,
        num_envs=16,
        tasks=tasks,
        tools=tools,
        rules=bounded,
        counter=TemplateCounter(template),
    )
    return TinyGame(tasks, expert, template, envs, right_and_wrong(world, tasks))


@pytest.fixture(scope="session")
def tiny_game() -> TinyGame:
    return make_tiny_game()
