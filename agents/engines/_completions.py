"""vLLM's completion requests on token ids, as JSON: written and read, and nothing sent.

Every field that a server might fill with a default of its own is written out (vLLM takes
them from the model's ``generation_config.json``), so that what is sampled is what was
asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.engines.base import Completion, Finish, Sampling, Spans
from agents.engines.checks import ROUNDING, checked_completion, checked_log_probs
from drv_env.errors import EngineError

NO_IDS = (
    "the server does not return token ids; use a server that does (vLLM, return_token_ids), "
    "or OpenAIChatEngine for text alone"
)
_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "abort": "aborted"}
_NONE = -9999.0
"""What vLLM's server writes for a log-prob of minus infinity, which JSON lacks."""
_NOT_RAW = (
    "the server's log-probs are not raw; start it with --logprobs-mode raw_logprobs, "
    "which is vLLM's default"
)


def generate_body(
    model: str, ids: Sequence[int], sampling: Sampling, max_tokens: int
) -> dict[str, Any]:
    """A request to continue ``ids``."""
    return {
        "model": model,
        "prompt": list(ids),
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,  # only the request's own stop ids end it
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "add_special_tokens": False,
        "logprobs": 0,  # the sampled id's alone
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **({} if sampling.seed is None else {"seed": sampling.seed}),
    }


def probe_body(model: str, id_: int) -> dict[str, Any]:
    """One id, sampled such that raw and processed log-probs differ; see :func:`check_probe`."""
    body = generate_body(model, [id_], Sampling(1, top_k=1), 1)
    return {**body, "logprobs": 2}


def score_body(model: str, ids: Sequence[int]) -> dict[str, Any]:
    """A request for the log-probs of ``ids``, and to sample nothing."""
    return {
        "model": model,
        "prompt": list(ids),
        "echo": True,
        "max_tokens": 0,
        "temperature": 0.0,
        "prompt_logprobs": 0,
        "add_special_tokens": False,
        "return_token_ids": True,
    }


def read_choice(answer: Any, sent: Sequence[int]) -> dict[str, Any]:
    """The one choice of an answer.

    Raises:
        EngineError: when there is none, or the server saw another prompt.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise EngineError("the server's answer is not a completion with one choice")
    choice: dict[str, Any] = choices[0]
    seen = choice.get("prompt_token_ids")
    if seen is not None and seen != list(sent):
        raise EngineError("the server changed the prompt's token ids")
    return choice


def read_completion(
    choice: dict[str, Any],
    weight_version: int,
    max_tokens: int,
    vocabulary: int | None = None,
) -> Completion:
    """The ids that were sampled, with their log-probs.

    Raises:
        EngineError: when the ids are missing or not what was asked for
            (:func:`agents.engines.checks.checked_completion`), or the log-probs aren't theirs.
    """
    ids = choice.get("token_ids")
    if not isinstance(ids, list) or not all(type(id_) is int for id_ in ids):
        raise EngineError(NO_IDS)
    finish = _FINISHES.get(str(choice.get("finish_reason")))
    if finish is None:
        raise EngineError(f"the server ended with {choice.get('finish_reason')!r}")
    given = choice.get("logprobs")
    given = given if isinstance(given, dict) else {}
    values, names = given.get("token_logprobs"), given.get("tokens")
    if not isinstance(values, list) or len(values) != len(ids):
        count = len(values) if isinstance(values, list) else "no"
        raise EngineError(f"the server sent {count} log-probs for {len(ids)} token ids")
    if names != [f"token_id:{id_}" for id_ in ids]:
        raise EngineError("the server's log-probs are of other tokens than its token ids")
    try:
        return checked_completion(
            Completion(ids, _log_probs(values), finish, weight_version),  # type: ignore[arg-type]
            max_tokens,
            vocabulary,
        )
    except EngineError as error:
        raise EngineError(f"the server's answer is none: {error}") from None


def check_probe(choice: dict[str, Any]) -> None:
    """Refuse a server whose log-probs depend on the sampling.

    With one id kept of the whole vocabulary, a processed log-prob of any other is -inf
    (JSON has -9999), and a raw one is not.

    Raises:
        EngineError: when they are not raw log-probs, or no token ids were sent.
    """
    read_completion(choice, 0, 1)
    top = (choice["logprobs"].get("top_logprobs") or [{}])[0] or {}
    values = [value for value in top.values() if isinstance(value, int | float)]
    if len(values) < 2 or min(values) < -9000:
        raise EngineError(_NOT_RAW)
    _log_probs(values)


def read_scores(
    choice: dict[str, Any], ids: Sequence[int], spans: Spans
) -> list[NDArray[np.float32]]:
    """Log-probs of spans of a prompt.

    Raises:
        EngineError: when the server sent none, or not those of these ids.
    """
    entries = choice.get("prompt_logprobs")
    if not isinstance(entries, list) or len(entries) != len(ids):
        raise EngineError(
            "the server does not send the prompt's log-probs (prompt_logprobs), so it can't score"
        )
    try:
        return [
            _log_probs([entries[at][str(ids[at])]["logprob"] for at in range(start, stop)])
            for start, stop in spans
        ]
    except (TypeError, KeyError):
        raise EngineError("the server's prompt log-probs are not those of the prompt") from None


def _log_probs(values: Sequence[Any]) -> NDArray[np.float32]:
    numbers = [value for value in values if isinstance(value, int | float)]
    if any(value > ROUNDING for value in numbers):
        raise EngineError(_NOT_RAW)
    if _NONE in numbers:
        raise EngineError(
            f"the server sent log-probs that are none: {_NONE:g} stands for minus infinity"
        )
    try:
        return checked_log_probs(values, len(values))
    except EngineError as error:
        raise EngineError(f"the server sent log-probs that are none: {error}") from None
