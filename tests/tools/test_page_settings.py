"""How much of a page is shown: from the command line, a run's file and a checkpoint alike."""

import pytest

from drv_env.errors import SettingError
from trainers.agent_file import checked_agent
from trainers.commands.agent_options import ToolOptions
from trainers.commands.tool_setup import plan_tools
from trainers.runs.run_config import ToolSection

AGENT = checked_agent({"offline": {"worlds": [3], "evidence_words": 8}})
WHOLE = checked_agent({"offline": {"worlds": [3], "whole_pages": True}})


@pytest.mark.parametrize(
    ("options", "agent", "expected"),
    [
        ({}, AGENT, {"evidence_words": 8}),
        ({"evidence_words": 40}, AGENT, {"evidence_words": 40, "whole_pages": False}),
        ({"whole_pages": True}, AGENT, {"evidence_words": 8, "whole_pages": True}),
        ({}, WHOLE, {"whole_pages": True}),
        ({"evidence_words": 40}, WHOLE, {"evidence_words": 40, "whole_pages": False}),
    ],
)
def test_the_command_line_wins_over_the_checkpoint(options, agent, expected):
    plan = plan_tools(ToolOptions(**options), agent)
    assert plan.kind == "offline"
    assert plan.settings == expected
    assert plan.make()._settings["whole_pages"] == expected.get("whole_pages", False)


def test_live_tools_are_told_too(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERPER_KEY_ID", "key-for-tests")
    for name in ("API_BASE", "SUMMARY_MODEL_NAME", "JINA_API_KEYS", "PROXY"):
        monkeypatch.delenv(name, raising=False)
    plan = plan_tools(ToolOptions(tools="live", whole_pages=True), AGENT)
    assert plan.asked() == {"tools": "live", "whole_pages": True}
    assert plan.make()._digester._whole_pages


def test_what_can_not_be_is_refused():
    with pytest.raises(SettingError, match="exclude each other"):
        plan_tools(ToolOptions(evidence_words=8, whole_pages=True), AGENT)
    with pytest.raises(SettingError, match="at least 1"):
        plan_tools(ToolOptions(evidence_words=0), AGENT)
    with pytest.raises(SettingError, match="at least 1"):
        ToolSection(evidence_words=0)
    with pytest.raises(SettingError, match="whole_pages"):
        checked_agent({"offline": {"whole_pages": "yes"}})
