"""Pools of workers end, also where a worker died with work on its way to it."""

import os
import sys
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pytest

from drv_env.errors import SettingError
from replay.worker_processes import ProcessPool

LARGE = bytes(5_000_000)
"""More than a pipe takes."""


def test_a_pool_whose_workers_die_at_the_start_ends():
    with ProcessPool(2, get_context("spawn"), os.abort) as pool:
        found = [pool.submit(len, LARGE) for _ in range(4)]
        for each in found:
            with pytest.raises(BrokenProcessPool):
                each.result()
        with pytest.raises(BrokenProcessPool):
            pool.submit(len, LARGE)


def test_a_pool_without_faults_gives_all_results():
    with ProcessPool(2, get_context("spawn")) as pool:
        found = [pool.submit(len, LARGE) for _ in range(4)]
    assert [each.result() for each in found] == [len(LARGE)] * 4
    with ProcessPool(2, get_context("spawn")) as unused:
        assert unused is not None


def test_a_script_without_a_guard_is_told_before_anything_starts(tmp_path, monkeypatch):
    script = tmp_path / "cleans.py"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    script.write_text("from replay.pipeline import run_clean\nrun_clean(job)\n")
    with pytest.raises(SettingError, match=r"import .*cleans\.py again.*__main__.*workers=1"):
        ProcessPool(2, get_context("spawn"))
    ProcessPool(2, get_context("fork")).shutdown()  # which imports nothing again
    script.write_text('if __name__ == "__main__":\n    run_clean(job)\n')
    ProcessPool(2, get_context("spawn")).shutdown()
    script.unlink()
    ProcessPool(2, get_context("spawn")).shutdown()
