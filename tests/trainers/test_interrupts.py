"""Ctrl-C while a step is being finished, and where it is ignored."""

import signal

import pytest

from trainers.interrupts import finishing_first


@pytest.fixture(autouse=True)
def _as_it_was():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_is_noted_and_the_second_is_as_always():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with finishing_first("this step") as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_it_is_ignored_it_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with finishing_first("this step") as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.asked
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
