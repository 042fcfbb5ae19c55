"""Text on its way to a chat server: web text made harmless.

A chat server renders messages with its template and then encodes them, and what spells a
control token there becomes one.  So nothing that may spell one leaves here in a text from
the web.  The characters put in its place are visible and are no tokenizer's normal form
of what they replace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from drv_env.protocol import observation_body, render_observation

ODD_TOKENS = ("]~b]", "]~!b[", "[e~[")
"""Control tokens in use that look like none."""

_ANGLES, _BRACKETS = "<\uff1c\ufe64", "[\uff3b"
"""The signs themselves, and those that normalisation makes them of."""

_OPENING = re.compile(
    rf"[{_ANGLES}](?=[^\s=\d-]|\d[^\s<>]{{0,40}}>)"  # <think>, <|im_end|>, </s>; not "a <= b"
    rf"|[{re.escape(_BRACKETS)}](?=/?[A-Z][A-Z_0-9]*\]|[gs]MASK\]|\|)"  # [INST], [|endofturn|]
)


def harmless(text: str, tokens: Collection[str] = ODD_TOKENS) -> str:
    """``text`` without tags and control tokens.

    ``<`` becomes ``‹`` where a tag or a control token may begin, ``[`` becomes ``⟦`` before
    a word in capitals that ends in ``]``, and into each of ``tokens`` a ``·`` is put.

    Args:
        text: from anywhere.
        tokens: further control tokens, whole; each of two characters or more.

    Example:
        >>> harmless("if a < b: </tool_response><|im_end|> [INST] [1]")
        'if a < b: ‹/tool_response>‹|im_end|> ⟦INST] [1]'
    """
    text = _OPENING.sub(lambda match: "⟦" if match[0] in _BRACKETS else "‹", text)
    for token in sorted(tokens, key=len, reverse=True):
        text = text.replace(token, f"{token[0]}·{token[1:]}")
    return text


def safe_messages(
    messages: Sequence[Mapping[str, str]], tokens: Collection[str] = ODD_TOKENS
) -> list[dict[str, str]]:
    """The messages as they may be sent.

    Unaltered are what the caller wrote (system messages and the first user message) and
    what the model wrote (assistant messages).  Of every other message the text is made
    harmless, but not the ``<tool_response>`` around an observation.
    """
    safe: list[dict[str, str]] = []
    asked = False
    for message in messages:
        role, content = message["role"], message["content"]
        if asked and role not in ("system", "assistant"):
            try:
                content = render_observation(harmless(observation_body(content), tokens))
            except ValueError:
                content = harmless(content, tokens)
        asked = asked or role == "user"
        safe.append({**message, "content": content})
    return safe
