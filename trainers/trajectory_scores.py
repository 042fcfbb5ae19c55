"""Log-probs of what was sampled and of what is put behind histories, in one go.

:func:`score_trajectories` is the one door.  Three ways lead to the same figures:

- ``packed``: keys and values of the trajectory once, all branches against them in one pass
  or few (:mod:`trainers.packed_scores`).  Cost: (L + Σ branch tokens) / L of the pass over
  the L tokens of the trajectory that gives the log-probs of its completions.
- ``sequential``: keys and values once, by the model's own cache and attention, then one
  pass a branch.  For models whose attention can't be replaced.
- ``plain``: one full pass a branch.  Slow; what the others are tested against, and the way
  for models in which keys and values can't be kept.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import DynamicCache

from drv_env.errors import SettingError
from drv_env.settings import at_least, checked_whole
from trainers.causal_model import CausalModel, evaluating, refuse_changing_past
from trainers.gain_settings import Method
from trainers.output_head import computed_in
from trainers.packed_scores import score_batch
from trainers.score_items import Branch, ScoreItem, Scores

log = logging.getLogger(__name__)

Found = tuple[NDArray[np.float32], list[NDArray[np.float32]]]
"""Log-probs of an item's wanted ids, and of each branch's scored ids."""


def score_trajectories(
    model: nn.Module,
    items: Sequence[ScoreItem],
    *,
    chunk_tokens: int = 8192,
    branch_tokens: int = 8192,
    method: Method = "auto",
) -> list[Scores]:
    """Score completions and branches of trajectories, without gradient and without dropout.

    Never are logits of a whole sequence made, nor more keys and values held than those of
    one trajectory, or of several with ``chunk_tokens`` together.

    Args:
        model: a Transformers causal language model, of any float type; may be in training
            mode, with gradient checkpointing, wrapped by peft.
        items: what to score; none to learn whether the model can be scored.
        chunk_tokens: tokens of trajectories in one forward pass.
        branch_tokens: tokens of branches in one forward pass; a longer branch is alone.
        method: ``auto`` is ``packed``, or ``sequential`` where the model's attention can't
            be replaced, which is logged.

    Raises:
        SettingError: when the model can't be scored by the method, or a number is below 1.
    """
    for name, number in (("chunk_tokens", chunk_tokens), ("branch_tokens", branch_tokens)):
        checked_whole(name, number, at_least(1))
    if method not in ("auto", "packed", "sequential", "plain"):
        raise SettingError(
            f'method must be "auto", "packed", "sequential" or "plain", got {method!r}'
        )
    causal = CausalModel(model)
    if method != "plain":
        refuse_changing_past(causal.config)
    with evaluating(causal.whole):
        if method in ("auto", "packed"):
            problem = _packing_problem(causal)
            if problem and method == "packed":
                raise SettingError(
                    f'{problem}; set rl.scoring to auto or sequential (method="sequential")'
                )
            method = "sequential" if problem else "packed"
        if method == "sequential":
            _refuse_changed_by_cache(causal)
        found: list[Found] = []
        for batch in _batches(items, chunk_tokens):
            if method == "packed":
                found += zip(
                    *score_batch(causal, batch, chunk_tokens, branch_tokens, _flex(causal)),
                    strict=True,
                )
            elif method == "sequential":
                found += (_sequential(causal, item, chunk_tokens) for item in batch)
            else:
                found += (_plain(causal, item) for item in batch)
    return [Scores.of(item, *one) for item, one in zip(items, found, strict=True)]


def _batches(items: Sequence[ScoreItem], most: int) -> Iterator[list[ScoreItem]]:
    """Items in order, together as long as they have at most ``most`` tokens."""
    batch: list[ScoreItem] = []
    tokens = 0
    for item in items:
        if batch and tokens + len(item.ids) > most:
            yield batch
            batch, tokens = [], 0
        batch.append(item)
        tokens += len(item.ids)
    if batch:
        yield batch


# ---- plain: a full pass a branch -------------------------------------------------------------


def _plain(model: CausalModel, item: ScoreItem) -> Found:
    return (
        _whole_pass(model, item.ids, item.wanted()),
        [
            _whole_pass(
                model,
                np.concatenate([item.ids[: branch.end], branch.ids]),
                np.concatenate([np.zeros(branch.end, bool), branch.scored]),
            )
            for branch in item.branches
        ],
    )


def _whole_pass(
    model: CausalModel, ids: NDArray[np.int32], wanted: NDArray[np.bool_]
) -> NDArray[np.float32]:
    places = np.flatnonzero(wanted)
    if not len(places):
        return np.zeros(0, np.float32)
    row = _tensor(model, ids[: places[-1]])
    return _picked(model, model.states(row[None])[0], places - 1, ids[places])


# ---- sequential: the model's own cache, a pass a branch ----------------------------------------


def _sequential(model: CausalModel, item: ScoreItem, chunk: int) -> Found:
    """Prefill, then the branches from the last history to the first, cutting the cache back."""
    wanted = item.wanted()
    places = np.flatnonzero(wanted)
    starts = [branch.end - 1 for branch in item.branches]
    stop = max([int(places[-1]) if len(places) else 0, *starts])
    cache = DynamicCache()
    log_probs = [np.zeros(0, np.float32)]
    for start in range(0, stop, chunk):
        end = min(start + chunk, stop)
        here = places[(places > start) & (places <= end)]
        states = _on_cache(model, cache, item.ids[start:end])
        log_probs.append(_picked(model, states, here - 1 - start, item.ids[here]))
    values = [np.zeros(0, np.float32)] * len(item.branches)
    for index in sorted(range(len(starts)), key=lambda index: -starts[index]):
        branch, start = item.branches[index], starts[index]
        ids = np.concatenate([item.ids[start : branch.end], branch.ids])
        scored = np.flatnonzero(branch.scored) + 1
        _cut(cache, start)
        states = _on_cache(model, cache, ids[: scored[-1]])
        values[index] = _picked(model, states, scored - 1, ids[scored])
    return np.concatenate(log_probs), values


def _on_cache(model: CausalModel, cache: DynamicCache, ids: NDArray[np.int32]) -> torch.Tensor:
    """Hidden states of new ids behind what the cache holds; it holds them too afterwards."""
    states: torch.Tensor = model.decoder(
        input_ids=_tensor(model, ids)[None], use_cache=True, **{model.cache_name: cache}
    ).last_hidden_state[0]
    return states


def _cut(cache: DynamicCache, length: int) -> None:
    beyond = cache.get_seq_length() - length
    if beyond:
        cache.crop(-beyond)


# ---- the pieces they share -------------------------------------------------------------------


def _tensor(model: CausalModel, array: NDArray[np.integer]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(model.device)


def _picked(
    model: CausalModel,
    states: torch.Tensor,
    places: NDArray[np.integer],
    targets: NDArray[np.integer],
) -> NDArray[np.float32]:
    """Log-probs of targets after the states at places."""
    found = model.log_probs(states[_tensor(model, places)], _tensor(model, targets))
    return found.cpu().numpy()


# ---- which way -------------------------------------------------------------------------------


def _flex(model: CausalModel) -> bool:
    return model.device.type == "cuda"


Way = tuple[torch.device, torch.dtype]

_PACKING: weakref.WeakKeyDictionary[nn.Module, dict[Way, str]] = weakref.WeakKeyDictionary()
"""Why a model can't be packed on a device, computing in a type, "" where it can; found once."""


def _packing_problem(model: CausalModel) -> str:
    known = _PACKING.setdefault(model.whole, {})
    way = model.device, computed_in(model.head.weight)
    if way not in known:
        known[way] = problem = _find_packing_problem(model)
        if problem:
            log.warning("trajectories are scored branch by branch, which is slower: %s", problem)
    return known[way]


def _find_packing_problem(model: CausalModel) -> str:
    """A few ids and two branches, packed, must give what full passes give."""
    name, item = type(model.whole).__name__, _few_ids(model)
    if model.device.type not in ("cpu", "cuda"):
        return f"there is no packed attention on {model.device.type}"
    try:
        # two items, for what stands beside a row must not matter either
        packed = score_batch(model, [item, item], 5, 4, _flex(model))
    except Exception as error:  # noqa: BLE001 (whatever the model does, it can't be packed)
        return f"{name}'s attention can't be replaced ({type(error).__name__}: {error})"
    if all(_as_plainly(model, item, each) for each in zip(*packed, strict=True)):
        return ""
    return f"{name} scored packed differs from {name} scored by itself"


_CACHED: weakref.WeakKeyDictionary[nn.Module, set[Way]] = weakref.WeakKeyDictionary()
"""Where a model's own cache is known to change nothing."""


def _refuse_changed_by_cache(model: CausalModel) -> None:
    known = _CACHED.setdefault(model.whole, set())
    way = model.device, computed_in(model.head.weight)
    if way in known:
        return
    item, why = _few_ids(model), "differs from it scored by itself"
    try:
        same = _as_plainly(model, item, _sequential(model, item, 5))
    except Exception as error:  # noqa: BLE001 (whatever the model does, it can't be scored so)
        same, why = False, f"fails ({type(error).__name__}: {error})"
    if not same:
        raise SettingError(
            f"{type(model.whole).__name__} scored from keys and values that are kept {why}; set "
            'rl.scoring to plain (method="plain"), which makes one full pass a history'
        )
    known.add(way)


def _few_ids(model: CausalModel) -> ScoreItem:
    ids = (np.arange(9) * 7 % model.vocabulary).astype(np.int32)
    both, second = np.array([True, True]), np.array([False, True])
    return ScoreItem(ids, [(1, 9)], [Branch(4, ids[:2], both), Branch(9, ids[2:4], second)])


def _as_plainly(model: CausalModel, item: ScoreItem, found: Found) -> bool:
    """Whether these log-probs are those of full passes."""
    atol = 1e-4 if computed_in(model.head.weight) == torch.float32 else 0.2
    plain = _plain(model, item)
    pairs = zip([found[0], *found[1]], [plain[0], *plain[1]], strict=True)
    return all(np.allclose(*pair, atol=atol, rtol=0, equal_nan=True) for pair in pairs)
