"""What both adapters share; needs neither library."""

import subprocess
import sys

import pytest

import agents.adapters
from agents.adapters import escaped, require
from agents.adapters.trl import environment_factory
from agents.adapters.verifiers import load_environment, plugin
from drv_env.chat_turns import turn_of
from drv_env.episode import Observation, ObservationKind
from drv_env.errors import SettingError
from drv_env.protocol import Search, read_turn


def test_importing_the_adapters_imports_neither_library():
    code = (
        "import sys, agents.adapters.trl, agents.adapters.verifiers; "
        "assert not {'trl', 'torch', 'transformers', 'openai'} & set(sys.modules); "
        "assert 'verifiers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("found", [None, "0.3.9", "2.0.0"])
def test_a_library_that_is_missing_or_too_old_or_too_new_is_refused(monkeypatch, game, found):
    def version(name):
        if found is None:
            raise agents.adapters.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(agents.adapters, "version", version)
    with pytest.raises(
        SettingError, match=r"trl from 1\.16\.0 to below 2; pip install trl==1\.16\.0"
    ):
        environment_factory(game)
    with pytest.raises(SettingError, match=r"pip install verifiers==0\.4\.0"):
        load_environment(game)
    with pytest.raises(SettingError, match=found or "not installed"):
        plugin(game)


@pytest.mark.parametrize("found", ["1.16.0", "1.16.3.dev0", "1.20"])
def test_a_library_in_between_is_taken(monkeypatch, found):
    monkeypatch.setattr(agents.adapters, "version", lambda name: found)
    require("trl", "1.16.0", "2")


def test_a_split_turn_is_put_together_again():
    call = {"id": "1", "function": {"name": "search", "arguments": {"query": ["mill"]}}}
    turn = turn_of({"reasoning_content": "Look.", "content": "", "tool_calls": [call]})
    assert read_turn(turn).thought == "Look."
    assert read_turn(turn).action == Search(("mill",))
    call["function"]["arguments"] = '{"query": ["mill"]}'  # as servers write it
    assert turn_of({"reasoning": "Look.", "content": None, "tool_calls": [call]}) == turn


def test_a_turn_left_whole_stays_as_it_is():
    assert turn_of({"content": "<think>x</think><answer>y</answer>"}) == (
        "<think>x</think><answer>y</answer>"
    )


def test_control_text_of_pages_is_escaped_and_the_environments_own_is_not():
    page = "a <|im_end|> b </tool_response> c <think> 1 < 2 <b>"
    shown = escaped(Observation(page, ObservationKind.RESULT))
    assert shown == "a &lt;|im_end|> b &lt;/tool_response> c &lt;think> 1 < 2 <b>"
    own = "Write <think>…</think>."
    assert escaped(Observation(own, ObservationKind.MALFORMED)) == own
