"""Does it learn: SFT, then GRPO against IGPO at the same budget of rollouts.

    python benchmarks/learning.py [--out runs/learning] [--jobs 2] [--quick] [--report]

In invented webs whose questions need several hops, a small model is cloned from an expert that
errs, which leaves head-room; each SFT seed has webs, expert and model of its own.  From each of
these models every method trains with several RL seeds; runs with the same two seeds are
pairs.  The learning rates of GRPO, of GRPO with the penalty alone and of IGPO are chosen in the
same way: the best of the same candidates, on validation questions, with another RL seed.  Test
questions are played once, by the final models; no entity that starts one starts a question in
training or validation.  Afterwards come the ablations: resampled SFT, gains on every turn, no
format penalty, the penalty alone, no IG scale, and credit by turn.

A run is one file in the folder; what is there is not run again, so that the same command goes on
after it was stopped.  Several commands may work on one folder at once.  ``--report`` runs nothing.
Everything takes some two hours of one core; ``--quick`` has its own folder and no meaning.

Prints tables and, as its last line, one JSON object: ``success_…`` and ``greedy_…`` by method
(means over SFT seeds, test questions), ``difference_igpo_grpo`` with ``…_standard_error`` (over
SFT seeds' mean differences of the pairs) and ``…_interval`` (half the 95% interval), the same for
``grpo_penalty``, ``pairs_…``, ``sft_seeds``, ``rollouts``, ``learning_rates``.  The plot is
``learning.svg`` in the folder (``pip install 'drv-env[plots]'``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
from pathlib import Path

from learning_plan import (
    QUICK,
    RLRun,
    Study,
    ablations,
    chosen_rates,
    comparison,
    sweep,
)
from learning_table import plot, print_tables, read_results, summary, validated
from rich.console import Console

from drv_env.whole_files import write_text


def main() -> int:
    parser = argparse.ArgumentParser(description="SFT, then GRPO against IGPO.")
    parser.add_argument("--out", type=Path, help="folder (runs/learning, or runs/learning-quick)")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to prove the path")
    parser.add_argument("--report", action="store_true", help="only tell what is there")
    arguments = parser.parse_args()
    study = QUICK if arguments.quick else Study()
    name = "runs/learning-quick" if arguments.quick else "runs/learning"
    folder: Path = arguments.out or Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    if not _same_settings(folder, study):
        print(f"{folder} holds a study with other settings; name another --out", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        if not arguments.report:
            _do(folder, study, arguments.jobs)
    except KeyboardInterrupt:
        print(f"Stopped; the same command goes on. What is done is in {folder}.")
        return 130
    return _report(folder, study)


def _report(folder: Path, study: Study) -> int:
    try:
        rates = _rates(folder, study)
    except ValueError:
        print(f"The learning rates have not been tried yet in {folder}.", file=sys.stderr)
        return 1
    planned = [*sweep(study), *comparison(study, rates), *ablations(study, rates)]
    found = read_results(folder, planned)
    if len(found) < len(planned):
        print(f"{len(found)} of {len(planned)} runs are there.")
    print_tables(found, study, Console(width=160))
    if not plot(found, study, folder / "learning.svg"):
        print("No plot: it needs matplotlib (pip install 'drv-env[plots]').")
    print(json.dumps(summary(found, study, rates)))
    return 0


def _rates(folder: Path, study: Study) -> dict[str, float]:
    found = read_results(folder, sweep(study))
    finals = [
        (run.method, run.learning_rate, validated(result))
        for run, result in found
        if isinstance(run, RLRun)
    ]
    return chosen_rates(finals, study)


def _same_settings(folder: Path, study: Study) -> bool:
    """Whether the folder is of this study; a new one is from now on."""
    file = folder / "study.json"
    told = json.loads(json.dumps(dataclasses.asdict(study)))
    if file.exists():
        return bool(json.loads(file.read_text(encoding="utf-8")) == told)
    write_text(file, json.dumps(told, indent=1) + "\n")
    return True


# ---- processes -----------------------------------------------------------------------------


def _do(folder: Path, study: Study, jobs: int) -> None:
    """Have everything done that is not there, by ``jobs`` processes.

    Raises:
        KeyboardInterrupt: after Ctrl-C, once the processes are gone.
        SystemExit: when one of them failed.
    """
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(folder, study), daemon=True) for _ in range(jobs)
    ]
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)  # theirs: we end them
    for process in processes:
        process.start()
    signal.signal(signal.SIGINT, heard)
    try:
        while alive := [process for process in processes if process.is_alive()]:
            multiprocessing.connection.wait([process.sentinel for process in alive])
            if any(process.exitcode for process in processes):
                raise SystemExit(1)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


def _work(folder: Path, study: Study) -> None:
    from learning_run import work  # needs torch, which the parent does not

    work(folder, study, sweep(study), _say)
    rates = _rates(folder, study)
    _say(f"learning rates: {rates}")
    work(folder, study, comparison(study, rates), _say)
    work(folder, study, ablations(study, rates), _say)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
