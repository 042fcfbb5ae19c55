"""Log-probs of targets behind a language model's output head; its logits are never whole.

Logits exist for a chunk of positions at a time, so that memory grows with the chunk and not
with positions × vocabulary:

- :func:`head_log_probs` makes them again in the backward pass, for any loss over log-probs;
- :func:`head_nll` is the negative log-likelihood alone, whose gradient is known as soon as
  the logits are (softmax less one-hot), so that the forward pass makes it and nothing is made
  twice (Liger Kernel, https://arxiv.org/abs/2410.10989, section 3.2, "FusedLinearCrossEntropy").

A model's scale and cap of its logits (:mod:`agents.engines.final_logits`) are part of both.
A head that is more than a matrix (a bias, an adapter) goes through autograd, chunk by chunk.
Gradients of the matrix are summed over chunks in float32 whatever the logits are made in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from agents.engines.final_logits import FinalLogits

CHUNK = 2048
"""The most positions whose logits are held at once."""

LOGITS_HELD = 2**24
"""The most logits held at once, positions × vocabulary: 64 MiB in float32."""

_PLAIN = FinalLogits()


def head_log_probs(
    head: nn.Module,
    states: Tensor,
    targets: Tensor,
    chunk: int | None = None,
    final: FinalLogits = _PLAIN,
    *,
    entropies_too: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probs of targets and entropies, float32 ``(n,)``.

    Args:
        head: hidden states to logits; ``head.weight`` is (vocabulary, hidden).
        states: ``(n, hidden)``.
        targets: ids, ``(n,)``.
        chunk: positions whose logits are held at once; by default as many as
            ``LOGITS_HELD`` allows, at most ``CHUNK``.
        final: what the model makes of the head's logits.
        entropies_too: whether entropies have a gradient; without, none is made.

    Returns:
        Raw log-probs (at temperature 1) with gradient, and entropies in nats, of the same
        distributions.
    """
    size = chunk or chunk_size(head)
    if not len(targets):
        empty = states.new_zeros(0, dtype=torch.float32)
        return empty, empty
    if _is_matrix(head):
        found: tuple[Tensor, Tensor] = _LogProbs.apply(
            states, head.weight, targets, size, final, entropies_too
        )
        return found
    parts = [
        checkpoint(
            _scores, head, final, states[part], targets[part], entropies_too, use_reentrant=False
        )
        for part in _chunks(len(targets), size)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def head_nll(
    head: nn.Module,
    states: Tensor,
    targets: Tensor,
    total: int,
    chunk: int | None = None,
    final: FinalLogits = _PLAIN,
) -> Tensor:
    """−Σ log p(target) / total, a float32 scalar with gradient.

    Args:
        head: as in :func:`head_log_probs`, like the rest.
        states: ``(n, hidden)``.
        targets: ids, ``(n,)``.
        total: what the sum is divided by: the targets of all parts of a batch.
        chunk: positions whose logits are held at once.
        final: what the model makes of the head's logits.
    """
    wanted = torch.is_grad_enabled() and (states.requires_grad or head.weight.requires_grad)
    if not (wanted and len(targets) and _is_matrix(head)):
        return -head_log_probs(head, states, targets, chunk, final)[0].sum() / total
    size = chunk or chunk_size(head)
    found: Tensor = _NLL.apply(states, head.weight, targets, total, size, final)
    return found


def chunk_size(head: nn.Module) -> int:
    """Positions whose logits are held at once, unless one says otherwise."""
    vocabulary = int(head.weight.shape[0])  # type: ignore[index, union-attr, arg-type]
    return max(16, min(CHUNK, LOGITS_HELD // vocabulary))


def computed_in(weight: Tensor) -> torch.dtype:
    """What a linear layer of this weight computes in, here and now."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        size: int,
        final: FinalLogits,
        entropies_too: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(states, weight, targets)
        ctx.size, ctx.final, ctx.dtype = size, final, computed_in(weight)
        ctx.entropies_too = entropies_too
        work = _Work(states, weight, ctx.dtype, size, final)
        log_probs, entropies = [], []
        for part in _chunks(len(targets), size):
            scores = work.scores(part)
            log_probs.append(scores.gather(-1, targets[part, None])[:, 0])
            entropies.append(-(scores.exp() * scores).sum(-1))
        found = torch.cat(entropies)
        if not entropies_too:
            ctx.mark_non_differentiable(found)
        return torch.cat(log_probs), found

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor, entropies: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, targets = ctx.saved_tensors
        work = _Work(states, weight, ctx.dtype, ctx.size, ctx.final)
        gradients = _Gradients(states, weight, ctx.needs_input_grad[:2])
        for part in reversed(list(_chunks(len(targets), ctx.size))):
            work.scores(part)
            of_entropies = entropies[part, None] if ctx.entropies_too else None
            gradients.add(work, part, targets[part], upstream[part, None], of_entropies)
        return *gradients.found(), *[None] * 4


class _NLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        total: int,
        size: int,
        final: FinalLogits,
    ) -> Tensor:
        work = _Work(states, weight, computed_in(weight), size, final)
        gradients = _Gradients(states, weight, ctx.needs_input_grad[:2])
        upstream = torch.full((len(targets), 1), -1 / total, device=states.device)
        picked = []
        for part in _chunks(len(targets), size):
            picked.append(work.scores(part).gather(-1, targets[part, None])[:, 0])
            gradients.add(work, part, targets[part], upstream[part])
        ctx.found = gradients.found()
        return -(torch.cat(picked).sum() / total)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        found, ctx.found = ctx.found, None
        if found is None:
            raise RuntimeError("the gradients of head_nll can be asked for once")
        return *(None if one is None else one.mul_(upstream) for one in found), *[None] * 4


class _Work:
    """Scores (log-softmax of final logits) of a chunk, and the gradient of the head's logits.

    On a CPU two buffers (three where logits are capped) serve all chunks: fresh memory of this
    size costs as much as what is computed in it.
    """

    def __init__(
        self,
        states: Tensor,
        weight: Tensor,
        dtype: torch.dtype,
        size: int,
        final: FinalLogits,
    ) -> None:
        self.states, self.weight = states.detach().to(dtype), weight.detach().to(dtype)
        shape = (min(size, len(states)), len(weight))
        self._kept = dtype == torch.float32 and states.device.type == "cpu"
        self._logits = states.new_empty(shape if self._kept else 0, dtype=torch.float32)
        self._scores = torch.empty_like(self._logits)
        self._final = final
        # of a capped model: tanh(scale · logits / cap)
        self._tanh = torch.empty_like(self._logits if final.cap is not None else self._logits[:0])

    def scores(self, part: slice) -> Tensor:
        """Log-softmax, float32 (chunk, vocabulary); good until the next are asked for."""
        states = self.states[part]
        if not self._kept:
            with torch.autocast(states.device.type, enabled=False):
                logits = self._capped((states @ self.weight.T).float())
                self._scores = torch.log_softmax(logits, dim=-1)
            return self._scores
        logits, scores = self._logits[: len(states)], self._scores[: len(states)]
        torch.mm(states, self.weight.T, out=logits)
        torch.ops.aten._log_softmax.out(self._capped(logits), -1, False, out=scores)
        return scores

    def gradient(
        self, targets: Tensor, upstream: Tensor, of_entropies: Tensor | None = None
    ) -> Tensor:
        """Of the head's logits behind the last scores, given log-probs' and entropies' (n, 1)."""
        scores = self._scores[: len(targets)]
        if self._kept:
            gradient = self._logits[: len(targets)].zero_().scatter_(-1, targets[:, None], upstream)
            torch.ops.aten._log_softmax_backward_data.out(
                gradient, scores, -1, torch.float32, out=gradient
            )
        else:
            picked = torch.zeros_like(scores).scatter_(-1, targets[:, None], upstream)
            gradient = torch._log_softmax_backward_data(picked, scores, -1, torch.float32)
        if of_entropies is not None:  # dH / d logits = −p (log p + H)
            shares = scores.exp()
            entropies = -(shares * scores).sum(-1, keepdim=True)
            gradient -= shares.mul_(scores + entropies).mul_(of_entropies)
        if self._final.cap is not None:  # d cap · tanh(x / cap) / dx = 1 − tanh²
            slope = self._tanh[: len(targets)].square_().neg_().add_(1)
            gradient.mul_(slope)
        if self._final.scale != 1.0:
            gradient.mul_(self._final.scale)
        return gradient

    def _capped(self, logits: Tensor) -> Tensor:
        """The final logits, in the place of the head's."""
        if self._final.scale != 1.0:
            logits.mul_(self._final.scale)
        cap = self._final.cap
        if cap is None:
            return logits
        if self._kept:
            torch.div(logits, cap, out=self._tanh[: len(logits)]).tanh_()
        else:
            self._tanh = logits.div_(cap).tanh_()
            return self._tanh * cap
        return torch.mul(self._tanh[: len(logits)], cap, out=logits)


class _Gradients:
    """Gradients of states and matrix, summed up chunk by chunk."""

    def __init__(self, states: Tensor, weight: Tensor, needed: tuple[bool, bool]) -> None:
        self._of_states = torch.empty_like(states) if needed[0] else None
        self._of_weight = torch.zeros_like(weight, dtype=torch.float32) if needed[1] else None
        self._dtype = weight.dtype

    def add(
        self,
        work: _Work,
        part: slice,
        targets: Tensor,
        upstream: Tensor,
        of_entropies: Tensor | None = None,
    ) -> None:
        """Of a chunk whose scores ``work`` has just made."""
        gradient = work.gradient(targets, upstream, of_entropies)
        with torch.autocast(gradient.device.type, enabled=False):
            if self._of_states is not None:
                self._of_states[part] = gradient.to(work.weight.dtype) @ work.weight
            if self._of_weight is not None:
                # products in the dtype of the states, their total in float32
                states = work.states[part]
                self._of_weight += gradient.to(states.dtype).T @ states

    def found(self) -> tuple[Tensor | None, Tensor | None]:
        weight = None if self._of_weight is None else self._of_weight.to(self._dtype)
        return self._of_states, weight


def _scores(
    head: nn.Module, final: FinalLogits, states: Tensor, targets: Tensor, entropies_too: bool
) -> tuple[Tensor, Tensor]:
    log_probs = torch.log_softmax(final(head(states)), dim=-1)
    with torch.set_grad_enabled(entropies_too and torch.is_grad_enabled()):
        entropies = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropies


def _is_matrix(head: nn.Module) -> bool:
    return type(head) is nn.Linear and head.bias is None


def _chunks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
