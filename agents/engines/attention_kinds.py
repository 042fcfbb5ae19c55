"""What a model's configuration says of its attention, where it is not the plain kind.

Plain is: every layer attends to all that came before, and a token's keys and values stay what
they are when more tokens come.  Engines with a cache of their own, scoring from kept keys and
packed rows rest on it.  Knows configurations alone; each answer is words, "" where it is plain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def other_layers(config: Any) -> str:
    """Layers that don't attend to all that came before: sliding windows, linear attention."""
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    window = getattr(config, "sliding_window", None)
    window = window if getattr(config, "use_sliding_window", True) else None
    if not kinds and not window:
        return ""
    found = f"has layers of {', '.join(sorted(map(str, kinds)))}" if kinds else ""
    slides = f"a sliding window of {window} tokens" if window else ""
    if found and slides:
        slides = f" ({slides})"
    elif slides:
        slides = f"has {slides}"
    return f"{config.model_type} {found}{slides}"


def changing_rotary(config: Any) -> str:
    """Rotary embeddings that change with the length, so that keys that are kept become others."""
    kinds = sorted({kind for kind in _rotary(config) if kind in ("dynamic", "longrope")})
    if not kinds:
        return ""
    return (
        f"the rotary embedding of {config.model_type} is {' and '.join(kinds)}, which changes "
        "with the length"
    )


def capped_attention(config: Any) -> str:
    """Attention whose scores are capped."""
    cap = getattr(config, "attn_logit_softcapping", None)
    return f"{config.model_type} caps its attention's scores at {cap}" if cap else ""


def _rotary(config: Any) -> Iterator[str]:
    """The kinds of rotary embedding, of all kinds of layers."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for each in (rope, *rope.values()):
        if isinstance(each, Mapping):
            yield str(each.get("rope_type") or each.get("type") or "default")
