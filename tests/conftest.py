"""What every test finds, however the suite was started: Ctrl-C, terminal, keys, threads.

A shell without job control starts background commands with SIGINT ignored; terminals have
sizes and variables of their own; people have keys.  None of it may decide what a test finds,
in this process or in one that a test starts.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests import logit_noise

TERMINAL = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
DECIDES_COLOURS = (
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "NO_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)
KEYS = (
    "API_BASE",
    "API_KEY",
    "JINA_API_KEYS",
    "JUDGE_API_BASE",
    "JUDGE_API_KEY",
    "JUDGE_MODEL_NAME",
    "OPENAI_API_KEY",
    "SERPER_KEY_ID",
    "SUMMARY_MODEL_NAME",
)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # which children would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(TERMINAL)
    for name in (*DECIDES_COLOURS, *KEYS):
        os.environ.pop(name, None)
    # where torch is held to an older processor's instructions, oneDNN is held to them too:
    # kernels of the one ask for layouts of the other
    if os.environ.get("ATEN_CPU_CAPABILITY") in ("default", "avx2"):
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    logit_noise.install_if_asked()
    _decide_examples(config)


def _decide_examples(config: pytest.Config) -> None:
    """The same examples in every run, however slow; --hypothesis-profile=explore tries others."""
    try:
        import hypothesis
    except ImportError:  # environments of their own need none of these tests
        return
    hypothesis.settings.register_profile("decided", deadline=None, derandomize=True, database=None)
    hypothesis.settings.register_profile("explore", deadline=None)
    chosen = config.getoption("hypothesis_profile", None)
    hypothesis.settings.load_profile(chosen or "decided")


def pytest_report_header(config: pytest.Config) -> str | None:
    return logit_noise.described()
