"""The verdict of each collected judge's reply."""

from drv_env.rewards.verdict import read_verdict


def test_every_reply_has_its_verdict(cases):
    replies = cases("judge_replies.jsonl")
    wrong = [case for case in replies if read_verdict(case["reply"]) is not case["verdict"]]
    assert not wrong
    assert {case["verdict"] for case in replies} == {True, False, None}
