"""Other trainers' environment protocols, played by our episodes.

:mod:`agents.adapters.trl` is for TRL's ``environment_factory``,
:mod:`agents.adapters.verifiers` for verifiers' tasksets and harnesses.  Neither library is
a dependency: each is imported when its adapter is asked for something.  Both take and give
text, so this file holds what that needs: keeping the text of web pages from being read as
control text by a host's tokenizer.  A host's message becomes a turn in
:mod:`drv_env.chat_turns`.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from drv_env.episode import Observation, ObservationKind
from drv_env.errors import SettingError

_CONTROL = re.compile(r"<(?=\|[^|<>\s]{1,40}\|>|/?(?:think|tool_call|tool_response|answer|tools)>)")


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


def escaped(observation: Observation) -> str:
    """An observation's text for a host that tokenises text.

    Such a host would read a ``<|im_end|>`` or ``</tool_response>`` in a web page as control
    text: in what tools bring back, the ``<`` of these becomes ``&lt;``.
    """
    if observation.kind is not ObservationKind.RESULT:
        return observation.text
    return _CONTROL.sub("&lt;", observation.text)
