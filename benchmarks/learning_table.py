"""What the results of ``benchmarks/learning.py`` say: tables, the summary, the plot.

The unit of replication is the SFT seed, which has webs, an expert and a model of its own: the RL
seeds of one SFT seed share a start and are no independent evidence about another.  A mean's
standard error is therefore that of the SFT seeds' means, and an interval is Student's with
(SFT seeds − 1) degrees of freedom.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning_plan import MAIN, METHODS, RLRun, Run, SFTRun, Study, result_file
from rich.console import Console
from rich.table import Table

Results = Sequence[tuple[Run, dict[str, Any]]]
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% points of Student's distribution by degrees of freedom, from 1."""
_FURTHER = 2.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over SFT seeds.

    Attributes:
        mean: of the SFT seeds' means.
        standard_error: of it, from the spread of those means; nan with one seed.
        seeds: how many SFT seeds.
        runs: how many runs, or pairs of runs.
        spread: standard deviation over all of them; nan with one.
    """

    mean: float
    standard_error: float
    seeds: int
    runs: int
    spread: float

    @classmethod
    def of(cls, values: Mapping[int, Sequence[float]]) -> Estimate:
        """From the values of each SFT seed, none of which is without one."""
        means = [statistics.fmean(of) for of in values.values()]
        every = [value for of in values.values() for value in of]
        return cls(
            statistics.fmean(means),
            statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan,
            len(means),
            len(every),
            statistics.stdev(every) if len(every) > 1 else math.nan,
        )

    @property
    def interval(self) -> float:
        """Half the width of the 95% interval; nan with one seed."""
        freedom = self.seeds - 1
        if freedom < 1:
            return math.nan
        point = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _FURTHER
        return point * self.standard_error


def read_results(folder: Path, runs: Sequence[Run]) -> Results:
    """The results of these runs that are there."""
    files = [(run, result_file(folder, run)) for run in runs]
    return [
        (run, json.loads(file.read_text(encoding="utf-8"))) for run, file in files if file.exists()
    ]


def on_test(results: Results, way: str = "test") -> dict[str, dict[tuple[int, int], float]]:
    """Success on the test questions by method, and there by SFT seed and RL seed.

    ``sft`` and ``sft-resampled`` are methods here too, with an RL seed of 0.
    """
    found: dict[str, dict[tuple[int, int], float]] = {}
    for run, result in results:
        if way not in result:
            continue
        if isinstance(run, SFTRun):
            name, key = ("sft-resampled" if run.resampled else "sft"), (run.seed, 0)
        else:
            name, key = run.method, (run.sft_seed, run.rl_seed)
        found.setdefault(name, {})[key] = float(result[way]["success"])
    return found


def estimate(values: Mapping[tuple[int, int], float]) -> Estimate:
    """Of one method."""
    return Estimate.of(_by_sft_seed(values))


def difference(
    values: Mapping[tuple[int, int], float], base: Mapping[tuple[int, int], float]
) -> Estimate | None:
    """One method less another, over the pairs that both have; None without one."""
    pairs = {key: values[key] - base[key] for key in values if key in base}
    return Estimate.of(_by_sft_seed(pairs)) if pairs else None


def summary(results: Results, study: Study, rates: Mapping[str, float]) -> dict[str, Any]:
    """The last line of the program."""
    values, greedy = on_test(results), on_test(results, "test_greedy")
    found: dict[str, Any] = {}
    for name, of in values.items():
        found[f"success_{_key(name)}"] = _rounded(estimate(of).mean)
    for name, of in greedy.items():
        found[f"greedy_{_key(name)}"] = _rounded(estimate(of).mean)
    for name, base in (("grpo", "grpo"), ("grpo_penalty", "grpo-penalty")):
        if "igpo" in values and base in values:
            gap = difference(values["igpo"], values[base])
            if gap is not None:
                found[f"difference_igpo_{name}"] = _rounded(gap.mean)
                found[f"difference_igpo_{name}_standard_error"] = _rounded(gap.standard_error)
                found[f"difference_igpo_{name}_interval"] = _rounded(gap.interval)
                found[f"pairs_igpo_{name}"] = gap.runs
    found["sft_seeds"], found["rollouts"] = len(study.sft_seeds), study.rollouts
    found["learning_rates"] = dict(rates)
    return found


def print_tables(results: Results, study: Study, console: Console) -> None:
    """All tables that there are results for."""
    values, greedy = on_test(results), on_test(results, "test_greedy")
    if "sft" in values:
        console.print(_methods(values, greedy, results, study))
        console.print(_seeds(values))
    console.print(_sweep(results, study))


def _methods(
    values: Mapping[str, dict[tuple[int, int], float]],
    greedy: Mapping[str, dict[tuple[int, int], float]],
    results: Results,
    study: Study,
) -> Table:
    table = Table(
        title=f"Success on {study.test} test questions after {study.rollouts:,} rollouts",
        caption="mean over SFT seeds ± its standard error; (spread over runs); the difference "
        "is over pairs with the same SFT and RL seed, with its 95% interval",
    )
    for column in ("method", "runs", "sampled", "greedy", *(f"{n} hops" for n in study.world.hops)):
        table.add_column(column, justify="left" if column == "method" else "right")
    table.add_column("well formed", justify="right")
    table.add_column("IGPO ahead by, pairs", justify="right")
    for name in ("sft", *METHODS, "sft-resampled"):
        if name not in values:
            continue
        own = estimate(values[name])
        told = [result["test"] for run, result in results if _name(run) == name]
        told = [item for item in told if item]
        shares = [
            f"{statistics.fmean(float(item['by_hops'].get(str(n), math.nan)) for item in told):.2f}"
            for n in study.world.hops
        ]
        formed = statistics.fmean(float(item["well_formed"]) for item in told)
        gap = None
        if name in METHODS and name != "igpo" and "igpo" in values:
            gap = difference(values["igpo"], values[name])
        table.add_row(
            {"sft": "SFT", "sft-resampled": "SFT, long trajectories resampled"}.get(name)
            or METHODS[name].title,
            str(own.runs),
            f"{own.mean:.3f} ± {own.standard_error:.3f} ({own.spread:.3f})",
            f"{estimate(greedy[name]).mean:.3f}",
            *shares,
            f"{formed:.1%}",
            "" if gap is None else f"{gap.mean:+.3f} ± {gap.interval:.3f}, {gap.runs}",
        )
    return table


def _seeds(values: Mapping[str, dict[tuple[int, int], float]]) -> Table:
    names = [name for name in ("sft", *MAIN) if name in values]
    table = Table(title="Sampled success by SFT seed: each RL seed's")
    table.add_column("SFT seed")
    for name in names:
        table.add_column(name, justify="right")
    for seed in sorted({key[0] for key in values["sft"]}):
        cells = []
        for name in names:
            own = sorted((key[1], of) for key, of in values[name].items() if key[0] == seed)
            cells.append(" ".join(f"{of:.3f}" for _, of in own))
        table.add_row(str(seed), *cells)
    return table


def _sweep(results: Results, study: Study) -> Table:
    table = Table(title=f"Learning rates, on {study.validation} validation questions a seed")
    table.add_column("method")
    for rate in study.learning_rates:
        table.add_column(f"{rate:g}", justify="right")
    for method in MAIN:
        cells = []
        for rate in study.learning_rates:
            own = [
                validated(result)
                for run, result in results
                if isinstance(run, RLRun)
                and not run.test
                and (run.method, run.learning_rate) == (method, rate)
            ]
            cells.append(f"{statistics.fmean(own):.3f} ({len(own)})" if own else "")
        table.add_row(METHODS[method].title, *cells)
    return table


def validated(result: Mapping[str, Any]) -> float:
    """What a learning rate is chosen by: validation success, mean of the curve's second half."""
    curve = [float(point["success"]) for point in result["curve"]]
    return statistics.fmean(curve[len(curve) // 2 :])


def curves(
    results: Results,
) -> dict[str, tuple[list[int], list[float], list[float]]]:
    """For each main method rollouts, mean validation success, and spread over all runs."""
    starts = {
        run.seed: float(result["curve"][0]["success"])
        for run, result in results
        if isinstance(run, SFTRun) and not run.resampled
    }
    found = {}
    for method in MAIN:
        points: dict[int, list[float]] = {}
        for run, result in results:
            if isinstance(run, RLRun) and run.test and run.method == method:
                points.setdefault(0, []).append(starts[run.sft_seed])
                for point in result["curve"]:
                    points.setdefault(int(point["rollouts"]), []).append(float(point["success"]))
        if points:
            at = sorted(points)
            found[method] = (
                at,
                [statistics.fmean(points[each]) for each in at],
                [statistics.stdev(points[each]) if len(points[each]) > 1 else 0.0 for each in at],
            )
    return found


def plot(results: Results, study: Study, file: Path) -> bool:
    """Draw the curves as SVG; False where matplotlib is not installed.

    A curve is the mean over all runs, its band one standard deviation over them.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "learning"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.8))
    looks = {"grpo": ("#c2572b", "--"), "grpo-penalty": ("#8a8a8a", ":"), "igpo": ("#1f6fb4", "-")}
    for method, (at, mean, spread) in curves(results).items():
        colour, style = looks[method]
        axes.plot(at, mean, style, color=colour, marker="o", label=METHODS[method].title)
        low = [value - by for value, by in zip(mean, spread, strict=True)]
        high = [value + by for value, by in zip(mean, spread, strict=True)]
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("rollouts")
    axes.set_ylabel(f"success on {study.validation} validation questions, sampled")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(file, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return True


def _name(run: Run) -> str | None:
    if isinstance(run, SFTRun):
        return "sft-resampled" if run.resampled else "sft"
    return run.method if run.test else None


def _by_sft_seed(values: Mapping[tuple[int, int], float]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for (seed, _), value in sorted(values.items()):
        found.setdefault(seed, []).append(value)
    return found


def _key(name: str) -> str:
    return name.replace("-", "_")


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
