"""What the options of a model and its rules come to: template, sampling, rules, an engine.

What an option says stands before what the checkpoint's ``agent.json`` says, and that before
the published inference of DR-Venus.  The model's own context bounds all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agents.engines.base import ChatEngine, Engine, Sampling
from drv_env.context import ContextCounter
from drv_env.episode import Rules
from drv_env.errors import SettingError, settings_called
from drv_env.json_files import read_object, read_text, why_unread
from drv_env.prompts import read_system_prompt
from drv_env.request_fields import check_field_names
from drv_env.service_address import service_address
from drv_env.tools.base import ToolSchema
from replay.chat_templates import CHATML, QWEN3_THINKING
from replay.counter import TemplateCounter
from replay.model_folders import fetching, model_folder, told_inside
from replay.template import ChatTemplate
from trainers.agent_file import NAME, Agent, read_agent
from trainers.commands.agent_options import (
    AgentOptions,
    Called,
    EngineKind,
    ModelOptions,
    RuleOptions,
    SamplingOptions,
)
from trainers.commands.engine_setup import make_engine
from trainers.commands.option_names import as_option

Say = Callable[[str], None]
"""Tells the user a line."""

PUBLISHED_SAMPLING: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 0.95,
    "top_k": 20,
    "presence_penalty": 1.1,
    "stop": ("<tool_response>",),
}
RULES = (
    *("max_turns", "count_forced_turn", "max_context", "max_turn_tokens"),
    *("max_seconds", "max_cost", "reading"),
)
"""Rules that an option, or a checkpoint, sets as they are."""
PUBLISHED_RULES: dict[str, Any] = {
    "system_prompt": None,
    "max_turns": 200,
    "max_context": 262_144,
    "max_turn_tokens": 8192,
    "max_seconds": None,
    "max_cost": None,
}

_TEMPLATES = {"own": None, "qwen3-thinking": QWEN3_THINKING, "chatml": CHATML}
_PARALLEL = {"transformers": 16}
_NOTHING: Agent = {"rules": {}, "sampling": {}, "offline": {}, "questions": {}}


@dataclass(frozen=True)
class AgentPlan:
    """A model and how it plays, before anything large is loaded.

    Attributes:
        options: the model's.
        kind: what runs it.
        folder: of model or tokenizer; None where only a server knows them.
        own: what the checkpoint says of itself.
        template: None where nobody knows a tokenizer.
        sampling: of every turn.
        bounds: arguments of :class:`Rules`, the tools left out.
        date: as it was asked for.
        parallel: episodes at once.
    """

    options: ModelOptions
    kind: EngineKind
    folder: Path | None
    own: Agent
    template: ChatTemplate | None
    sampling: Sampling
    bounds: dict[str, Any]
    date: str | None
    parallel: int

    @property
    def counter(self) -> ContextCounter | None:
        """Counts the context of an episode that nobody else counts."""
        return None if self.template is None else TemplateCounter(self.template)

    def rules(self, tools: Sequence[ToolSchema]) -> Rules:
        """What an episode allows."""
        return Rules(tools=tuple(tools), **self.bounds)

    def asked(self) -> dict[str, Any]:
        """What must be the same for episodes to belong together; plain values."""
        sampling = asdict(self.sampling)
        del sampling["seed"], sampling["stop_ids"]
        bounds = {**self.bounds, "date": self.date}
        found = {"model": self.options.model, "engine": self.kind, **sampling, **bounds}
        found["chat_template"] = self.options.chat_template
        if self.kind in ("transformers", "vllm") and self.folder is not None:
            found["model"] = str(self.folder.resolve())
            found["weights"] = _fingerprint(self.folder)
        return found

    def start(self, seed: int, **vllm_arguments: Any) -> Engine | ChatEngine:
        """The engine; its owner closes it."""
        pieces = None if self.template is None else self.template.pieces
        context: int | None = self.bounds["max_context"]
        return make_engine(
            self.kind, self.options, context, self.parallel, seed, pieces, **vllm_arguments
        )


def plan_agent(
    options: AgentOptions, say: Say, parallel: int | None = None, called: Called = as_option
) -> AgentPlan:
    """Everything about the agent that can be known without loading the model.

    Args:
        options: the command line's.
        say: told what the user did not ask for.
        parallel: episodes at once where the options don't say.
        called: what messages call an option.

    Raises:
        SettingError: naming the option or the file that can't work.
    """
    model = options.model
    kind = model.engine or ("transformers" if model.base_url is None else "openai")
    if kind in ("transformers", "vllm"):
        model = replace(model, model=str(model_folder(model.model)))
    if model.tokenizer is not None:
        model = replace(model, tokenizer=model_folder(model.tokenizer))
    folder = _folder(model, kind, called)
    own = None if folder is None else read_agent(folder)
    if own is not None:
        say(f"{folder}/{NAME}: the model plays as it was trained, where no option says otherwise")
    own = own or _NOTHING
    template = None if folder is None else _template(folder, model.chat_template, called)
    if template is not None and folder is not None:
        known = Path(model.model) if kind in ("transformers", "vllm") else folder
        refuse_other_tokenizer(known, template, folder)
    held = None if folder is None else _held(folder)
    bounds = _bounds(options.rules, own["rules"], held, template is not None, say)
    count = parallel or _PARALLEL.get(kind, 64) if model.parallel is None else model.parallel
    if count < 1:
        raise SettingError(f"{called('parallel')} must be at least 1, got {count}")
    return AgentPlan(
        options=model,
        kind=kind,
        folder=folder,
        own=own,
        template=template,
        sampling=_sampling(options.sampling, own["sampling"], bounds["max_turn_tokens"], template),
        bounds=bounds,
        date=options.rules.date,
        parallel=count,
    )


def _folder(model: ModelOptions, kind: EngineKind, called: Called) -> Path | None:
    """Where the tokenizer is."""
    if kind in ("transformers", "vllm"):
        if model.base_url is not None:
            raise SettingError(f"--base-url goes with openai and openai-ids, not --engine {kind}")
        for name in ("omit_field", "max_tokens_field"):
            if getattr(model, name):
                raise SettingError(f"{called(name)} goes with a server ({called('base_url')})")
        folder = Path(model.model)
        server = f", or a server with {called('base_url')}" if called is as_option else ""
        refuse_no_model(folder, called("model"), server)
        return model.tokenizer or folder
    check_field_names(
        model.omit_field,
        model.max_tokens_field or "max_tokens",
        (called("omit_field"), called("max_tokens_field")),
    )
    if model.base_url is None:
        raise SettingError(f"--engine {kind} needs --base-url, such as http://localhost:8000/v1")
    where = "put the key into the variable that --api-key-env names, OPENAI_API_KEY by default"
    service_address(model.base_url, "--base-url", where)
    if kind == "openai-ids" and model.tokenizer is None:
        raise SettingError(
            "--engine openai-ids sends token ids: name a folder with the model's tokenizer with "
            "--tokenizer"
        )
    return model.tokenizer


def refuse_no_model(folder: str | Path, called: str, instead: str = "") -> None:
    """Refuse a folder without a model, before Transformers is asked, which would look online.

    Args:
        folder: what was named.
        called: what the user calls the setting.
        instead: what else could be named.

    Raises:
        SettingError: naming the setting and the folder.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        fault = "no such folder with a model (config.json)"
    elif _is_run(path):
        fault = "a run's folder, and no model's"
    else:
        return
    inside = told_inside(path, "config.json")
    if inside:
        raise SettingError(f"{called} {folder}: {fault}{inside}")
    raise SettingError(
        f"{called} {folder}: {fault}; name one as save_pretrained writes it{instead}"
        f"{fetching(folder)}"
    )


def _is_run(folder: Path) -> bool:
    """Whether the ``config.json`` in the folder is a run's record."""
    from trainers.run_folder import recorded_config

    try:
        return recorded_config(folder) is not None
    except SettingError:
        return False


def template_source(chosen: str, called: Called = as_option) -> str | None:
    """The Jinja text of a chat template by its name or file; None is the folder's own.

    Raises:
        SettingError: when it is neither.
    """
    if chosen in _TEMPLATES:
        return _TEMPLATES[chosen]
    try:
        return read_text(chosen)
    except (OSError, ValueError) as error:
        option = called("chat_template")
        raise SettingError(
            f"{option} {chosen} is none of {', '.join(_TEMPLATES)}, nor a file: {why_unread(error)}"
        ) from None


def _template(folder: Path, chosen: str, called: Called) -> ChatTemplate:
    option, source = called("chat_template"), template_source(chosen, called)
    try:
        return ChatTemplate.from_folder(folder, chat_template=source)
    except SettingError as error:
        if not (folder / "tokenizer.json").is_file():  # no other template would help
            raise
        others = " or ".join(name for name in _TEMPLATES if name not in ("own", chosen))
        raise SettingError(f"{error}; {option} can be {others}") from None


def refuse_other_tokenizer(model: Path, template: ChatTemplate, folder: Path) -> None:
    """Refuse a tokenizer that doesn't fit the model, where its configuration is there.

    Raises:
        SettingError: naming both.
    """
    if not (model / "config.json").is_file():
        return  # a server's model, of which nothing is known here
    try:
        from agents.engines.checkpoint_check import check_tokenizer
    except ImportError:  # without torch there is no model either
        return
    check_tokenizer(model, template.pieces.tokenizer, str(folder))


def _held(folder: Path) -> int | None:
    """Tokens that the model's positions allow, where there is a configuration that says so."""
    file = folder / "config.json"
    if not file.is_file():  # a tokenizer's alone
        return None
    config = read_object(file)
    found = config.get("max_position_embeddings")
    inner = config.get("text_config")
    if found is None and isinstance(inner, dict):
        found = inner.get("max_position_embeddings")
    return found if isinstance(found, int) else None


def _bounds(
    options: RuleOptions, own: dict[str, Any], held: int | None, counted: bool, say: Say
) -> dict[str, Any]:
    """Arguments of :class:`Rules`."""
    bounds = {**PUBLISHED_RULES, **own}
    for name in RULES:
        if getattr(options, name) is not None:
            bounds[name] = getattr(options, name)
    if options.max_unreadable is not None:
        bounds["max_unreadable"] = options.max_unreadable or None
    if options.system_prompt is not None:
        bounds["system_prompt"] = read_system_prompt(options.system_prompt)
    if options.date is not None:
        bounds["date"] = _date(options.date)
    if not counted:
        if options.max_context is not None:
            raise SettingError("--max-context needs a tokenizer to count with: add --tokenizer")
        bounds["max_context"] = None
        return bounds
    said = ""
    if held is not None and held < bounds["max_context"]:
        bounds["max_context"] = held
        said = f"the model holds {held:,} tokens of context, so its episodes do"
    quarter = max(1, bounds["max_context"] // 4)
    known = options.max_turn_tokens is not None or "max_turn_tokens" in own
    if not known and bounds["max_turn_tokens"] > quarter:
        bounds["max_turn_tokens"] = quarter
        said += f"{', and' if said else 'in a context of that size'} a turn has {quarter:,} at most"
    if said:
        say(said)
    return bounds


def _date(asked: str) -> str:
    if asked != "today":
        return asked
    import datetime

    return datetime.date.today().isoformat()


def _sampling(
    options: SamplingOptions, own: dict[str, Any], tokens: int, template: ChatTemplate | None
) -> Sampling:
    chosen = {**PUBLISHED_SAMPLING, **own}
    for name in PUBLISHED_SAMPLING:
        if getattr(options, name) is not None:
            chosen[name] = getattr(options, name)
    if options.greedy:
        if options.temperature:
            given = options.temperature
            raise SettingError(f"--greedy is temperature 0, but --temperature is {given}")
        chosen["temperature"] = 0.0
    stop_ids = () if template is None else template.stop_ids
    with settings_called(max_tokens="max_turn_tokens"):
        return Sampling(tokens, stop_ids=stop_ids, **chosen)


def _fingerprint(folder: Path) -> str:
    """Tells weights apart without reading them: names, sizes and times of their files."""
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    files = [file for file in files if file.is_file()]  # a link may lead nowhere
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
