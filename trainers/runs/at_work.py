"""Model, engine and game of a run of reinforcement, opened together and closed together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
from torch import nn

from agents.engines.base import Engine
from agents.vector_rollout import VectorEnv
from drv_env import ENV_ID, background
from drv_env.tools.closing import close_tools_now
from trainers.model_setup import engine_weights
from trainers.plugins import outcome_of
from trainers.runs.playing import Playing
from trainers.runs.running import ready_model


@dataclass(frozen=True)
class AtWork:
    """What a loop of reinforcement works with.

    Attributes:
        model: what is trained, on its device.
        engine: what plays, with its own copy of the weights; closed by whoever opened this.
        env: as many episodes side by side as are played at once.
    """

    model: nn.Module
    engine: Engine
    env: VectorEnv

    def give_weights(self) -> None:
        """Have the engine play by the model's weights as they are now."""
        background.run(self.engine.update_weights(engine_weights(self.model)))


@contextmanager
def at_work(playing: Playing) -> Iterator[AtWork]:
    """Open everything; it is closed at the end, after an error and after Ctrl-C.

    Raises:
        DrvError: when a key is missing, or model or engine can't be started.
    """
    run = playing.run
    with ExitStack() as stack:

        def closing(thing: Any) -> Any:
            close = getattr(thing, "close", None)
            if close is not None:
                stack.callback(lambda: background.run(close()))
            return thing

        tools = playing.tools.make()  # before the model, for a key that is missing
        stack.callback(close_tools_now, tools)
        outcome = outcome_of(run.outcome)
        stack.callback(close_tools_now, outcome)
        model = ready_model(run.model, run.rl.seed)
        engine = closing(playing.start_engine())
        env = gymnasium.make_vec(
            ENV_ID,
            num_envs=playing.parallel,
            tasks=playing.tasks,
            tools=tools,
            outcome=outcome,
            rules=playing.rules(tools.schemas),
            counter=playing.agent.counter,
        )
        yield AtWork(model, engine, env)
