"""Our requests in vLLM's words, and its outputs in ours.

Knows vLLM's sampling parameters and outputs; sends nothing.  What differs from vLLM's
own habits: only ``stop_ids`` and ``stop`` end a completion (never the model's own
end-of-sequence id), special tokens count for stop texts, and the ids end with the one
that completes a stop text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.engines._stopping import count_to_stop
from agents.engines.base import Completion, Finish, Sampling
from drv_env.errors import EngineError
from replay.pieces import Pieces

HOTTEST = 2.0
"""The highest temperature vLLM takes."""


def check_sampling(sampling: Sampling) -> None:
    """Raise EngineError for what vLLM can't do."""
    if sampling.temperature > HOTTEST:
        raise EngineError(
            f"vLLM samples at temperatures up to {HOTTEST:g}, not {sampling.temperature:g}"
        )


def sampling_params(sampling: Sampling, limit: int, engine_seed: int, number: int) -> Any:
    """vLLM's parameters for a completion.

    Args:
        limit: ids at most.
        engine_seed: of the engine.
        number: of the request, which seeds one that has no seed of its own.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=limit,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        presence_penalty=sampling.presence_penalty,
        seed=_seed(sampling, engine_seed, number),
        stop=list(sampling.stop),
        stop_token_ids=list(sampling.stop_ids),
        ignore_eos=True,
        logprobs=0,
        flat_logprobs=True,
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def completion(output: Any, sampling: Sampling, pieces: Pieces, version: int) -> Completion:
    """vLLM's final output as a completion."""
    sampled = output.outputs[0]
    ids = [int(id_) for id_ in sampled.token_ids]
    flat = sampled.logprobs
    log_probs = [_log_prob(flat, at, id_) for at, id_ in enumerate(ids)]
    finish = _finish(sampled.finish_reason)
    count = _count_to_stop(pieces, sampling.stop, ids)
    if count is not None:
        ids, log_probs, finish = ids[:count], log_probs[:count], "stop"
    return Completion(np.array(ids, np.int32), np.array(log_probs, np.float32), finish, version)


def scoring_params(last: int, more: bool, fresh: bool) -> Any:
    """vLLM's parameters for a score.

    The prompt is all ids but the last to be scored; that one is the only id which may be
    sampled.  Its raw log-prob is taken before others are ruled out.

    Args:
        last: the last id to be scored.
        more: whether ids of the prompt are scored too.
        fresh: read nothing from the prefix cache.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=1,
        temperature=0.0,
        allowed_token_ids=[last],
        ignore_eos=True,
        logprobs=0,
        prompt_logprobs=0 if more else None,
        flat_logprobs=True,
        detokenize=False,
        skip_reading_prefix_cache=fresh,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scores(
    output: Any, ids: Sequence[int], spans: Sequence[tuple[int, int]]
) -> list[NDArray[np.float32]] | None:
    """Log-probs of the spans of ``ids``, whose last id was sampled.

    None when vLLM found more in its prefix cache than it may: it has log-probs of the
    ids that it computed alone.
    """
    length = len(ids) - 1  # of the prompt
    first = min(start for start, stop in spans if stop > start)
    if first < length and (output.num_cached_tokens or 0) > first - 1:
        return None
    sampled = output.outputs[0]
    if list(sampled.token_ids) != [ids[-1]]:
        raise EngineError(f"vLLM sampled {list(sampled.token_ids)} where only {ids[-1]} may stand")
    last = _log_prob(sampled.logprobs, 0, ids[-1])
    prompt = output.prompt_logprobs
    # counted from the end, for some versions leave out what was cached
    found = {
        at: _log_prob(prompt, len(prompt) + at - length, ids[at])
        for at in _wanted(spans)
        if at < length
    }
    found[length] = last
    return [np.array([found[at] for at in range(start, stop)], np.float32) for start, stop in spans]


def _wanted(spans: Sequence[tuple[int, int]]) -> set[int]:
    return {at for start, stop in spans for at in range(start, stop)}


def _log_prob(flat: Any, at: int, id_: int) -> float:
    """Of ``id_`` at a position; vLLM puts the id of the text first."""
    start = flat.start_indices[at] if flat is not None and 0 <= at < len(flat) else -1
    if start < 0 or flat.token_ids[start : start + 1] != [id_]:
        raise EngineError("vLLM gave no log-prob for an id; this version can't be used")
    return float(flat.logprobs[start])


def _finish(reason: str | None) -> Finish:
    if reason in ("stop", "length"):
        return "stop" if reason == "stop" else "length"
    if reason == "abort":
        return "aborted"
    raise EngineError(f"vLLM ended a completion with {reason!r}")


def _count_to_stop(pieces: Pieces, texts: Sequence[str], ids: Sequence[int]) -> int | None:
    """Usually all of them: vLLM looks at whole characters only, so it may see one late."""
    if not texts:
        return None
    known = [id_ for id_ in ids if pieces.tokenizer.id_to_token(id_) is not None]
    text = pieces.decode(known)
    return count_to_stop(pieces, texts, ids) if any(stop in text for stop in texts) else None


def _seed(sampling: Sampling, engine_seed: int, number: int) -> int | None:
    if sampling.temperature == 0:
        return None
    own = sampling.seed
    entropy = (0, engine_seed, number) if own is None else (1, own)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
