"""The options that ``drv ask``, ``drv rollout`` and ``drv eval`` share.

Options alone, of which None means "not given": what then holds is decided in
:mod:`trainers.commands.agent_setup`.  Nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

EngineKind = Literal["transformers", "vllm", "openai", "openai-ids"]
ToolKind = Literal["live", "offline", "recorded"]
Part = Literal["train", "validation", "test"]
ReadingName = Literal["default", "thought_optional", "released"]
"""As :data:`drv_env.protocol.ReadingRule`, which is not imported for what it brings along."""

Called = Callable[[str], str]
"""What the user calls a setting: an option here, a place in a file elsewhere."""


_Int = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
_Str = Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="")]
_Float = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
_Bool = Annotated[bool | None, tyro.conf.arg(metavar="{True,False}", help_behavior_hint="")]
_Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
_Path = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model plays, and what runs it."""

    model: str
    """A folder as save_pretrained writes it, or the name of a model of the Hub that was fetched (hf
    download NAME); at a server, the model's name there."""
    engine: Annotated[
        EngineKind | None,
        tyro.conf.arg(metavar="{transformers,vllm,openai,openai-ids}", help_behavior_hint=""),
    ] = None
    """transformers or vllm run the folder here; openai is any chat server, openai-ids a vLLM
    server asked for token ids. By default transformers, and openai with --base-url."""
    base_url: _Text = None
    """Of the server, such as http://localhost:8000/v1."""
    api_key_env: str = "OPENAI_API_KEY"
    """The variable, in the environment or in .env, that holds the server's key."""
    omit_field: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[NAME …]", help_behavior_hint="")
    ] = ()
    """Fields that the server doesn't take, such as temperature top_k; one that it refuses by name
    is left out anyway."""
    max_tokens_field: _Text = None
    """What the server calls the limit of a turn's tokens: max_tokens, or max_completion_tokens."""
    tokenizer: _Path = None
    """A folder with the served model's tokenizer and chat template: needed for openai-ids; with
    openai it lets the context be counted."""
    chat_template: str = "own"
    """own, qwen3-thinking, chatml, or a file of Jinja."""
    device: _Text = None
    """For transformers; by default cuda where there is one, else cpu."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """For transformers and vllm, of the weights in memory: auto is what they are stored as,
    but 16 bits with vllm."""
    parallel: _Int = None
    """Episodes played at once: by default 64, with transformers 16."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How turns are sampled; by default as published, or as a checkpoint's agent.json says."""

    temperature: _Float = None
    """1.0 by default."""
    top_p: _Float = None
    """0.95 by default."""
    top_k: _Int = None
    """20 by default; 0 keeps all."""
    presence_penalty: _Float = None
    """1.1 by default."""
    stop: Annotated[
        tuple[str, ...] | None, tyro.conf.arg(metavar="[TEXT …]", help_behavior_hint="")
    ] = None
    """Texts that end a turn: <tool_response> by default."""
    greedy: bool = False
    """Take the most likely token each time: temperature 0."""


@dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """What an episode may use; by default as published, or as agent.json says."""

    max_turns: _Int = None
    """Turns before the answer is asked for: 200 by default."""
    count_forced_turn: _Bool = None
    """Count the turn that has to answer among them; False by default."""
    max_context: _Int = None
    """Tokens of the whole episode: 262144 by default, or what the model holds."""
    max_turn_tokens: _Int = None
    """Tokens of one turn: 8192 by default, and at most a quarter of the context."""
    max_seconds: _Float = None
    """Seconds before the answer is asked for."""
    max_cost: _Float = None
    """US dollars that calls may cost before the answer is asked for."""
    max_unreadable: _Int = None
    """Turns in a row that can't be read before the answer is asked for: 5 by default; 0 for no
    bound."""
    reading: Annotated[
        ReadingName | None,
        tyro.conf.arg(metavar="{default,thought_optional,released}", help_behavior_hint=""),
    ] = None
    """How turns are read: default needs <think>; thought_optional is for models that write none;
    released is DR-Venus's own."""
    system_prompt: _Path = None
    """A file, in place of the project's own prompt."""
    date: _Text = None
    """Today's date for the project's own prompt; today is the computer's."""


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """What search and visit work on."""

    tools: Annotated[
        str | None,
        tyro.conf.arg(metavar="{live,offline,recorded,NAME}", help_behavior_hint=""),
    ] = None
    """By default recorded with --web; offline with --pages or --world, or where agent.json has
    worlds; else live, for which keys are needed (drv doctor). NAME is module:attribute, or an entry
    point, of tools of your own in their place."""
    own_tools: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[NAME …]", help_behavior_hint="")
    ] = ()
    """Tools of your own beside them, each module:attribute or an entry point."""
    pages: _Path = None
    """Pages of your own: a table with the columns url, title and text (JSON lines, JSON, CSV,
    Parquet), or a folder of .txt, .md and .html files."""
    world: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="[SEED …]", help_behavior_hint="")
    ] = None
    """Seeds of the invented webs of offline tools."""
    web: _Path = None
    """The recorded web, made by drv data web."""
    cassette: _Path = None
    """A file that keeps what live calls gave and answers them when they are made again."""
    cassette_only: bool = False
    """Make no call that the cassette doesn't have; needs no keys."""
    evidence_words: _Int = None
    """Of a visited page, the most words that are shown where no model reads it (400); a page that
    has no more is shown whole, of a longer one the passages that bear on the goal."""
    whole_pages: bool = False
    """Show such pages whole, however long."""


@dataclass(frozen=True, kw_only=True)
class PluginOptions:
    """What is imported first."""

    plugins: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[MODULE …]", help_behavior_hint="")
    ] = ()
    """Modules to import first, which register tools, outcomes or scorers by name."""


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """A model with its rules and tools."""

    model: Annotated[ModelOptions, tyro.conf.arg(name="")]
    sampling: Annotated[SamplingOptions, tyro.conf.arg(name="")] = SamplingOptions()
    rules: Annotated[RuleOptions, tyro.conf.arg(name="")] = RuleOptions()
    tools: Annotated[ToolOptions, tyro.conf.arg(name="")] = ToolOptions()
    plugged: Annotated[PluginOptions, tyro.conf.arg(name="")] = PluginOptions()

    def inputs(self) -> list[Path]:
        """Files and folders that are read, where they are there; a cassette, which is also
        written, is not among them."""
        model = self.model
        found = [Path(model.model) / "config.json", Path(model.chat_template)]
        found += [model.tokenizer / "tokenizer.json"] if model.tokenizer else []
        return found + [
            each for each in (self.rules.system_prompt, self.tools.web, self.tools.pages) if each
        ]


@dataclass(frozen=True, kw_only=True)
class PaceOptions:
    """How many episodes are played; limits, deadlines, what is sampled again."""

    max_requests: _Int = None
    """Requests at the engine at a time; no bound by default."""
    max_calls: _Int = None
    """Calls of tools at a time; no bound by default."""
    turn_timeout: float = 1800.0
    """Seconds for one turn of the model; one that takes longer breaks the episode."""
    episode_timeout: _Float = None
    """Seconds for one episode; one that takes longer is broken."""
    stragglers: Literal["wait", "ask", "cancel"] = "wait"
    """Of the last episodes: wait, ask them for their answer, or cancel them."""
    straggler_share: float = 0.9
    """Share of the episodes that must be over before the rest are the last."""
    attempts: int = 1
    """Completions of one turn at most; above 1, a turn with one of the faults is sampled again."""
    faults: tuple[Literal["repetition", "unreadable", "duplicate"], ...] = (
        "repetition",
        "unreadable",
        "duplicate",
    )
    """What is sampled again."""
    seed: _Int = None
    """Fixes the sampling, and which questions are drawn: 0 by default."""
    flush_seconds: float = 30.0
    """A kill loses what came since the last writing, which is so long ago at most."""


USUAL_PACE = PaceOptions()


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Which questions."""

    tasks: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASKS")]
    """A file of tasks; or the word world, for questions about the webs of --world."""
    question_column: _Str = None
    """The file's column of questions, where it isn't found by itself; a.b reaches into a."""
    answer_column: _Str = None
    """Its column of gold answers."""
    id_column: _Str = None
    """Its column of ids."""
    questions: _Int = None
    """Draw so many; by default all of a file, and 200 of a world. Of a world, this and the
    following are by default as the checkpoint's agent.json says of itself, where it does."""
    part: Annotated[
        Part | None,
        tyro.conf.arg(metavar="{train,validation,test}", help_behavior_hint=""),
    ] = None
    """Of a world's questions: by default test for eval, train for rollout."""
    hops: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="[INT …]", help_behavior_hint="")
    ] = None
    """How many facts a question about a world chains: 1 2 3 by default."""
    balanced: _Bool = None
    """Take as many questions about worlds of each number of hops, as many as there are of the
    rarest; False by default."""

    def columns(self) -> dict[str, str | None]:
        """For :func:`drv_env.task_files.read_tasks`."""
        return {
            "question": self.question_column,
            "answer": self.answer_column,
            "id": self.id_column,
        }
