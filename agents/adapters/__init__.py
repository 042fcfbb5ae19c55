"""Other trainers' environment protocols, played by our episodes.

:mod:`agents.adapters.trl` is for TRL's ``environment_factory``,
:mod:`agents.adapters.verifiers` for verifiers' tasksets and harnesses.  Neither library is
a dependency: each is imported when its adapter is asked for something.  Both take and give
text, so this file holds what that needs: reading a host's message as a turn, and keeping
the text of web pages from being read as control text by a host's tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from drv_env.episode import Observation, ObservationKind
from drv_env.errors import SettingError
from drv_env.protocol import CALL, END_CALL, END_THINK, THINK

_CONTROL = re.compile(r"<(?=\|[^|<>\s]{1,40}\|>|/?(?:think|tool_call|tool_response|answer|tools)>)")
_REASONING = ("reasoning_content", "reasoning")


def require(package: str, tested: str, below: str) -> None:
    """Make sure that a host library is there, in a version its adapter was written for.

    Args:
        package: the distribution's name.
        tested: the version that the adapter's tests run with; the lowest that is taken.
        below: the first version that is not.

    Raises:
        SettingError: naming the versions and what to install.
    """
    wanted = f"{package} from {tested} to below {below}; pip install {package}=={tested}"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise SettingError(f"{package} is not installed; the adapter needs {wanted}") from None
    if not _numbers(tested) <= _numbers(found) < _numbers(below):
        raise SettingError(f"{package} {found} is installed; the adapter needs {wanted}")


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])


def turn_of(message: Mapping[str, Any]) -> str:
    """A host's assistant message as one turn of text.

    A host that splits turns leaves the thought in ``reasoning_content`` (or ``reasoning``)
    and the calls in ``tool_calls``; they are put back in their tags.

    Example:
        >>> turn_of({"reasoning_content": "Known.", "content": "<answer>Paris</answer>"})
        '<think>\\nKnown.\\n</think>\\n<answer>Paris</answer>'
    """
    parts = []
    thought = next((message[key] for key in _REASONING if message.get(key)), None)
    if thought is not None:
        parts.append(f"{THINK}\n{thought.strip()}\n{END_THINK}")
    if message.get("content"):
        parts.append(message["content"])
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments", {})
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        body = f'{{"name": {json.dumps(function.get("name"))}, "arguments": {arguments}}}'
        parts.append(f"{CALL}\n{body}\n{END_CALL}")
    return "\n".join(parts)


def escaped(observation: Observation) -> str:
    """An observation's text for a host that tokenises text.

    Such a host would read a ``<|im_end|>`` or ``</tool_response>`` in a web page as control
    text: in what tools bring back, the ``<`` of these becomes ``&lt;``.
    """
    if observation.kind is not ObservationKind.RESULT:
        return observation.text
    return _CONTROL.sub("&lt;", observation.text)
