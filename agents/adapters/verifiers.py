"""Our episodes as a verifiers environment (its v1 interface): a taskset and its harness.

The harness plays in this process: it sends the messages to the rollout's endpoint, hands
the reply to :meth:`~drv_env.game.Game.play_one` as one turn, and sends the observation
back, until the episode is over.  Rules, observations and outcome are those of
:class:`~drv_env.env.DeepResearchEnv`; the reward is the outcome, the metrics say how the
turns were.  A broken episode is an error on its trace (``ToolsetError`` for tools that
are down, ``TaskError`` for a lost judge): its reward is None and verifiers may retry it.

A server that splits turns (``reasoning_content``, ``tool_calls``) has them put together
again, and its calls are answered with tool messages; the format verdict of such a turn is
that of the turn put together.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

from agents.adapters import escaped, require
from drv_env.chat_turns import turn_of
from drv_env.episode import Ending, Episode
from drv_env.errors import JudgeError, SettingError
from drv_env.game import Game, is_truncated
from drv_env.play import Played
from drv_env.protocol import render_observation
from drv_env.spaces import SampledText
from drv_env.tools.closing import close_tools

TESTED = "0.4.0"
ONE_CALL = "The call was not carried out: a turn makes one call."


def load_environment(game: Game, name: str = "drv_env_research", **config: Any) -> Any:
    """An environment that plays ``game``, for ``async with environment.serving(): …``.

    Args:
        game: tasks, tools, outcome and rules; the tools are closed when serving ends.
        name: the taskset's id, under which traces name it; one game has one.
        config: anything else of verifiers' ``EnvConfig``: ``agent``, ``timeout``,
            ``retries``.

    Raises:
        SettingError: when verifiers is missing or too old or too new, or the name is taken.
    """
    require("verifiers", TESTED, "0.5")
    import verifiers.v1 as vf  # type: ignore[import-not-found]

    if not name.isidentifier() or name != name.lower():
        raise SettingError(f"name must be a module's name in small letters, got {name!r}")
    if getattr(sys.modules.get(name), "game", None) is not game:
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            raise SettingError(f"there is a module {name!r} already; give this game another name")
        # verifiers finds tasksets and harnesses by importing a module of their id.
        module = ModuleType(name)
        vars(module).update(game=game, **plugin(game))
        sys.modules[name] = module
    return vf.load_environment(vf.resolve_env_config({"taskset": {"id": name}, **config}))


def plugin(game: Game) -> dict[str, Any]:
    """What a module must hold to be a verifiers environment of its own, ``__all__`` included.

    For ``vf-eval NAME``, workers and trainers, which import it by name: put
    ``globals().update(plugin(game))`` into ``NAME.py``.

    Raises:
        SettingError: when verifiers is missing or too old or too new.
    """
    require("verifiers", TESTED, "0.5")
    import verifiers.v1 as vf  # type: ignore[import-not-found]
    from openai import APIStatusError, AsyncOpenAI  # type: ignore[import-not-found]

    class ResearchData(vf.TaskData):
        number: int
        answers: list[str]

    class ResearchState(vf.State):
        outcome: float | None = None

    class ResearchTask(vf.Task[ResearchData, ResearchState]):
        @vf.reward
        async def outcome(self, trace: Any) -> float:
            return trace.state.outcome or 0.0  # stopped by the host: no answer was given

        @vf.metric
        async def episode(self, trace: Any) -> dict[str, float]:
            turns = trace.info["turns"]
            return {
                "well_formed": sum(turn["well_formed"] for turn in turns) / max(1, len(turns)),
                "answered": float(trace.info["ending"] == Ending.ANSWERED),
                "truncated": float(trace.info["truncated"]),
                "cost": sum(turn["cost"] for turn in turns),
            }

    class ResearchTaskset(vf.Taskset[ResearchTask, vf.TasksetConfig]):
        def load(self) -> Any:
            for number, task in enumerate(game.tasks):
                *system, question = (said["content"] for said in game.episode(task).opening)
                yield ResearchTask(
                    ResearchData(
                        number=number,
                        id=task.id,
                        answers=list(task.answers),
                        prompt=question,
                        system_prompt=system[0] if system else None,
                    ),
                    self.config.task,
                )

    class ResearchHarness(vf.Harness[vf.HarnessConfig]):
        APPENDS_SYSTEM_PROMPT = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self,
            ctx: Any,
            trace: Any,
            runtime: Any,
            endpoint: str,
            secret: str,
            mcp_urls: Any,
            data: Any,
        ) -> Any:
            episode = game.episode(game.tasks[data.number])
            said = zip(("system", "user"), self.resolve_prompt(data), strict=True)
            messages: list[Any] = [{"role": role, "content": text} for role, text in said if text]
            async with AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None) as client:
                while episode.ending is None:
                    _record(trace, episode)
                    try:
                        reply = await client.chat.completions.create(
                            model=ctx.model, messages=messages
                        )
                    except APIStatusError:
                        if trace.stop_condition is None:
                            raise
                        break  # a limit or stop of the host
                    message = reply.choices[0].message.model_dump(exclude_none=True)
                    turn = turn_of(message)
                    if "content" not in message and not turn:
                        raise vf.ProviderError("the model's reply has neither text nor a call")
                    message.setdefault("content", "")
                    if reply.usage is not None:
                        turn = SampledText(turn, reply.usage.completion_tokens)
                    played = await game.play_one(episode, turn)
                    messages += [message, *_answers(message, played)]
            _record(trace, episode)
            if episode.error is not None:
                lost = vf.TaskError if isinstance(episode.error, JudgeError) else vf.ToolsetError
                raise lost(str(episode.error)) from episode.error
            if episode.ending is not None:
                trace.state.outcome = played.reward.outcome
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    class ResearchConfig(vf.EnvConfig):
        agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())

    class ResearchEnv(vf.Env[ResearchConfig]):
        async def run(self, task: Any, agents: Any) -> None:
            await agents.agent.run(task)

        async def stop(self) -> None:
            await close_tools(game.tools, game.outcome)

    found = (ResearchTask, ResearchTaskset, ResearchHarness, ResearchEnv)
    classes = {cls.__name__: cls for cls in found}
    return {**classes, "__all__": list(classes)}


def _answers(message: dict[str, Any], played: Played) -> list[dict[str, Any]]:
    """What goes back to the model: a user message, or one tool message a call."""
    if played.observation is None:
        return []
    text = escaped(played.observation)
    calls = message.get("tool_calls")
    if not calls:
        return [{"role": "user", "content": render_observation(text)}]
    first, *others = (
        {"role": "tool", "tool_call_id": call["id"], "content": ONE_CALL} for call in calls
    )
    return [{**first, "content": text}, *others]


def _record(trace: Any, episode: Episode) -> None:
    """Put what is known of the episode where the trace's readers find it."""
    trace.info.update(
        ending=None if episode.ending is None else str(episode.ending),
        truncated=is_truncated(episode),
        answer=episode.answer,
        error=None if episode.error is None else str(episode.error),
        turns=[
            {
                "well_formed": turn.well_formed,
                "tool": None if turn.call is None else turn.call.name,
                "status": None if turn.result is None else str(turn.result.status),
                "cost": 0.0 if turn.result is None else turn.result.cost,
            }
            for turn in episode.turns
        ],
    )
