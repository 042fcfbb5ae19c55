"""Text with a chat template's marks, as messages: ChatML's, Llama 3's, or the bare names of the
roles that are left when special tokens are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MARKED = re.compile(
    r"<\|im_start\|>[ ]*(\w+)\n(.*?)(?:<\|im_end\|>|(?=<\|im_start\|>)|\Z)"
    r"|<\|start_header_id\|>(\w+)<\|end_header_id\|>\n*(.*?)"
    r"(?:<\|eot_id\|>|<\|end_of_text\|>|(?=<\|start_header_id\|>)|\Z)",
    re.DOTALL,
)
_END = re.compile(r"<\|(?:im_end|eot_id|end_of_text|begin_of_text)\|>")
_BARE = re.compile(r"\A(?:system\n(.*?)\n)?user\n(.*)\nassistant\n?(.*)\Z", re.DOTALL)

Chat = list[Mapping[str, Any]]


def chat_of_text(text: str) -> Chat | None:
    """The messages of a text with a chat template's marks; None where it has none.

    Example:
        >>> chat_of_text("<|im_start|>user\\nWho?<|im_end|>\\n")
        [{'role': 'user', 'content': 'Who?'}]
    """
    if "<|im_start|>" in text or "<|start_header_id|>" in text:
        marks = list(_MARKED.finditer(text))
        before = text[: marks[0].start()] if marks else text
        before = _END.sub("", before).strip()
        found: Chat = [{"role": "assistant", "content": before}] if before else []
        for marked in marks:
            role, content = marked[1] or marked[3], marked[2] or marked[4] or ""
            found.append({"role": role, "content": content})
        return [each for each in found if each is found[-1] or each["content"].strip()]
    bare = _BARE.match(text) if text.startswith(("system\n", "user\n")) else None
    if bare is None:
        return None
    system, user, begun = bare.groups()
    return [
        *([{"role": "system", "content": system}] if system else []),
        {"role": "user", "content": user},
        *([{"role": "assistant", "content": begun}]),
    ]
