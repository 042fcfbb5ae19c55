"""The line that says how a rollout is going, and how long it will take."""

import pytest

from agents.meter import Meter
from trainers.commands.progress import line


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Over:
    """As much of a trajectory as the meter looks at."""

    ending = "answered"


@pytest.mark.parametrize(
    ("over", "seconds", "said"),
    [
        (0, 50.0, "time left not known yet"),
        (1, 10.0, "about 2 min left"),  # 9 more at 10 s each are 90 s
        (5, 50.0, "about 50 s left"),
        (2, 3000.0, "about 3 h 20 min left"),  # 8 more at 1,500 s each are 12,000 s
    ],
)
def test_the_time_left_is_that_of_the_rest_at_the_pace_so_far(over, seconds, said):
    clock = Clock()
    meter = Meter(clock)
    meter.start(10)
    clock.now += seconds
    for _ in range(over):
        meter.over(Over())
    assert said in line(meter.progress())


def test_when_all_are_over_nothing_is_left():
    clock = Clock()
    meter = Meter(clock)
    meter.start(2)
    clock.now += 8.0
    for _ in range(2):
        meter.over(Over())
    assert "left" not in line(meter.progress())
