"""Small changes made on purpose to the core modules, to see whether the suite notices them.

    .venv/bin/python tests/mutations.py                        # 3 changes a module
    .venv/bin/python tests/mutations.py --each 10 --seed 1 --only trainers/credit.py

Run by hand: it takes a quarter of an hour and more.  A change swaps an operator, a constant or
a branch, or leaves a statement or an argument out; it is drawn by the seed from all that the
module allows.  It is made in a copy of the tree, where the test files that import the module
run first, then the others of its package.  The variables that name reference values are
unset: outside, nobody has those.  The last lines name what went unseen; the exit status is 1
where under 95% was seen.  A module whose tests fail without any change is left out, and named.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
WANTED = 0.95
SECONDS = 240
"""Of one run of tests; a change that makes them hang was seen."""

LARGE = 1000
"""Numbers from here on bound sizes and times, and no rule rests on their last digit."""

CORE = {
    "drv_env": "addresses calls context episode game play protocol secrets spaces wrappers "
    "vector_wrappers task_rows task_order cassette/records cassette/near cassette/store "
    "rewards/calibration rewards/information_gain rewards/judge rewards/key_facts "
    "rewards/outcome rewards/verdict tools/cassette tools/passages tools/parts unicode_text urls "
    "call_keys turn_parts markdown_code chat_turns tools/layers/cache tools/layers/cost "
    "tools/layers/limits",
    "replay": "align clean correctness documents layouts packing pieces probe recorded resample "
    "schema search_text template token_store token_writer trajectory "
    "transcript",
    "agents": "ahead evaluate players robust rollout turn_limits "
    "engines/_sampling engines/_slots engines/_stopping engines/turn_stops",
    "trainers": "advantages credit information_gain kl learnt losses output_head packed_rows "
    "optimiser optimiser_settings packed_scores rl_metrics rows score_items sft_batches "
    "step_advantages update",
}
"""Modules whose rules decide what an agent sees, what is paid and what is learnt."""

TESTS = {
    "drv_env": ("tests/env", "tests/tools", "tests/rewards", "tests/test_cassette"),
    "replay": ("tests/replay", "tests/damaged", "tests/test_files_of_others"),
    "agents": ("tests/agents", "tests/engines", "tests/test_eval", "tests/test_rollout_command"),
    "trainers": ("tests/trainers",),
}
_COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}
_NOT_HERE = ("tests/adapters", "tests/cluster", "tests/golden")
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change: characters of a file replaced by others."""

    path: str
    start: int
    stop: int
    text: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"

    def apply(self, source: str) -> str:
        """The changed source."""
        return source[: self.start] + self.text + source[self.stop :]


class Mutations(ast.NodeVisitor):
    """All changes that a module allows, in ``found``."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source
        self.found: list[Mutation] = []
        self._lines = [0]
        for line in source.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = source.encode()
        self.visit(ast.parse(source))

    def _at(self, line: int, column: int) -> int:
        return len(self._bytes[: self._lines[line - 1] + column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        where: ast.expr = node  # type: ignore[assignment]
        assert where.end_lineno is not None
        assert where.end_col_offset is not None
        return (
            self._at(where.lineno, where.col_offset),
            self._at(where.end_lineno, where.end_col_offset),
        )

    def _text(self, node: ast.AST) -> str:
        start, stop = self._span(node)
        return self.source[start:stop]

    def _replace(self, node: ast.AST, text: str, what: str) -> None:
        start, stop = self._span(node)
        line: int = node.lineno  # type: ignore[attr-defined]
        shown = re.sub(r"\s+", " ", self.source[start:stop])
        self.found.append(Mutation(self.path, start, stop, text, line, f"{what}: {shown[:70]}"))

    def _between(self, left: ast.expr, right: ast.expr, text: str, what: str) -> None:
        start, stop = self._span(left)[1], self._span(right)[0]
        old = self.source[start:stop]
        if "(" in old or ")" in old or "\n" in old:
            return
        shown = re.sub(r"\s+", " ", self.source[self._span(left)[0] : self._span(right)[1]])
        self.found.append(
            Mutation(self.path, start, stop, f" {text} ", left.lineno, f"{what}: {shown[:70]}")
        )

    def _body(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__len__"):
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is no rule; that it is raised is."""
        self._replace(node, "pass", "no raise")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions speak to the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """What is shown is no rule."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._replace(node, "pass", "left out")
            self._body(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not _is_nothing(node.value):
            self._replace(node.value, "None", "returns None")
            self._body(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass", "left out")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass", "left out")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass", "left out")
        self.visit(node.value)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if "TYPE_CHECKING" in self._text(node.test):
            return
        self._replace(node.test, f"(not ({self._text(node.test)}))", "negated")
        self._body(node)

    visit_IfExp = visit_If

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        text = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values[:-1], node.values[1:], strict=True):
            self._between(left, right, text, text)
        for value in node.values:
            self.visit(value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace(node, f"({self._text(node.operand)})", "sign dropped")
        self.visit(node.operand)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, right, sign in zip(sides[:-1], sides[1:], node.ops, strict=True):
            self._between(left, right, _COMPARED[type(sign)], _COMPARED[type(sign)])
        for side in sides:
            self.visit(side)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = _ARITHMETIC.get(type(node.op))
        words = (ast.Constant, ast.JoinedStr)
        if text and not (
            isinstance(node.left, words) and isinstance(node.left, ast.JoinedStr | ast.Constant)
        ):
            self._between(node.left, node.right, text, text)
        self._body(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value), f"{not value}")
        elif isinstance(value, int | float) and abs(value) < LARGE:
            changed = value + 1 if isinstance(value, int) else value * 1.5 + (value == 0)
            self._replace(node, repr(changed), f"{changed}")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            self._replace(node.func, _NAMES[node.func.id], _NAMES[node.func.id])
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in ("strip", "lower", "casefold") and not node.args:
            assert isinstance(node.func, ast.Attribute)
            self._replace(node, self._text(node.func.value), "not called")
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("field", "Literal", "Path", "TypeVar") or name.endswith("Error"):
            return
        for child in (
            node.func,
            *node.args,
            *(k.value for k in node.keywords if k.arg != "strict"),
        ):
            self.visit(child)  # "strict" is a check that never fails in a program without faults

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        self.visit(node.slice)


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def mutations(path: str) -> list[Mutation]:
    """All changes that a module allows."""
    return Mutations(path, (ROOT / path).read_text(encoding="utf-8")).found


def core_modules() -> list[str]:
    """Paths of all of :data:`CORE`."""
    return [f"{package}/{name}.py" for package, names in CORE.items() for name in names.split()]


def drawn(paths: Sequence[str], each: int, seed: int) -> Iterator[Mutation]:
    """``each`` changes a module, the same for the same seed and source."""
    for path in paths:
        rng = random.Random(f"{seed} {path}")
        found = mutations(path)
        yield from sorted(rng.sample(found, min(each, len(found))), key=lambda item: item.start)


def unseen_before(output: str) -> list[Mutation]:
    """The changes that an output of this program names as unseen; the modules are the same."""
    named = set(re.findall(r"UNSEEN (.*)", output))
    paths = dict.fromkeys(name.partition(":")[0] for name in sorted(named))
    return [item for path in paths for item in mutations(path) if str(item) in named]


def rounds(path: str) -> list[list[str]]:
    """Test files for a module: those that import from it, then the others of its package.

    Where none imports it, those that import a module that does.
    """
    files = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    files = [file for file in files if not file.startswith(_NOT_HERE)]
    near = _importing(path, files)
    if not near:
        package = path.split("/")[0]
        ours = [str(file.relative_to(ROOT)) for file in sorted((ROOT / package).rglob("*.py"))]
        between = [module for module in _importing(path, ours) if "__init__" not in module]
        near = sorted({file for module in between for file in _importing(module, files)})
    stem = Path(path).stem.strip("_")
    near.sort(key=lambda file: stem not in Path(file).stem)  # its own tests first
    far = [file for file in files if file.startswith(TESTS[path.split("/")[0]])]
    return [[path, *near], [file for file in far if file not in near]]


def _importing(path: str, files: Sequence[str]) -> list[str]:
    module = path.removesuffix(".py").replace("/", ".")
    defined = set(_defined(ROOT / path))
    return [file for file in files if _imports(ROOT / file, module, defined)]


def _defined(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _imports(file: Path, module: str, defined: AbstractSet[str]) -> bool:
    """Whether a test imports the module, or one of its names from a package above it."""
    package = module.partition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == package and node.attr in defined:
                return True
        elif isinstance(node, ast.Import) and any(item.name == module for item in node.names):
            return True
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {item.name for item in node.names}
            whole = {f"{node.module}.{name}" for name in names}
            above = module.startswith(f"{node.module}.") and names & defined
            if node.module == module or module in whole or above:
                return True
    return False


# ---- running tests in a copy of the tree, in a process that has the libraries already --------


def copied(folder: Path) -> Path:
    """A copy of what the tests need."""
    target = folder / "tree"
    skipped = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")

    def left_out(place: str, names: list[str]) -> set[str]:
        users = {"runs"} if Path(place) == ROOT else set()  # what commands wrote, by default
        return skipped(place, names) | users

    shutil.copytree(ROOT, target, ignore=left_out)
    return target


def preload() -> None:
    """Import what costs seconds, and nothing of ours."""
    import aiohttp
    import gymnasium
    import hypothesis
    import pyarrow.parquet
    import pytest
    import tantivy
    import tokenizers
    import torch
    import trafilatura
    import transformers

    assert all(
        (aiohttp, gymnasium, hypothesis, pyarrow, pytest, tantivy, tokenizers, torch, trafilatura)
    )
    assert transformers.Qwen3ForCausalLM
    assert transformers.PreTrainedTokenizerFast
    torch.set_num_threads(1)


def run_tests(tree: Path, files: Sequence[str]) -> int:
    """pytest's exit status; 124 where it ran out of time."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            sink = os.open(tree.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            os.chdir(tree)
            sys.path.insert(0, str(tree))
            os.environ["PYTHONPATH"] = str(tree)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            import pytest

            options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not cluster"]
            code = int(pytest.main([*options, *files]))
        except BaseException:  # noqa: BLE001 - whatever it is, the change was seen
            code = 99
        os._exit(code)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


GREEN = (0, 5)
"""pytest's exit statuses where nothing failed, or there was no test."""


def red_without(tree: Path, path: str, near: bool) -> list[str]:
    """The tests of a module where they fail without any change: they would see whatever is."""
    chosen = [files for files in rounds(path)[: 1 if near else 2] if files]
    return [file for files in chosen if run_tests(tree, files) not in GREEN for file in files]


def is_seen(tree: Path, mutation: Mutation, near: bool) -> bool:
    """Whether a test fails, with the change in the copy; the copy is as before afterwards."""
    file = tree / mutation.path
    source = file.read_text(encoding="utf-8")
    changed = mutation.apply(source)
    try:
        compile(changed, mutation.path, "exec")
    except SyntaxError:
        return True
    file.write_text(changed, encoding="utf-8")
    try:
        return any(
            run_tests(tree, files) not in GREEN
            for files in rounds(mutation.path)[: 1 if near else 2]
            if files
        )
    finally:
        file.write_text(source, encoding="utf-8")


def main() -> int:
    """Make the changes and print what came of each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--each", type=int, default=3, help="changes a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--near", action="store_true", help="only tests that import the module")
    parser.add_argument("--only", nargs="*", default=core_modules(), help="modules, as paths")
    parser.add_argument("--again", type=Path, help="an earlier output: what it says is unseen")
    chosen = parser.parse_args()
    for name in ("DRV_GOLDEN", "DRV_CASES", "DRV_DATA"):
        os.environ.pop(name, None)
    os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    sys.path = [
        item for item in sys.path if Path(item or ".").resolve() not in (ROOT, ROOT / "tests")
    ]
    preload()
    wanted = list(drawn(chosen.only, chosen.each, chosen.seed))
    if chosen.again:
        wanted = unseen_before(chosen.again.read_text(encoding="utf-8"))
    unseen: list[Mutation] = []
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="drv-mutations-") as folder:
        for job in range(chosen.jobs):
            (Path(folder) / str(job)).mkdir()
            trees.put(copied(Path(folder) / str(job)))

        red: dict[str, list[str]] = {}

        def judged(mutation: Mutation) -> tuple[Mutation, bool | None]:
            tree = trees.get()
            try:
                if mutation.path not in red:
                    red[mutation.path] = red_without(tree, mutation.path, chosen.near)
                if red[mutation.path]:
                    return mutation, None
                return mutation, is_seen(tree, mutation, chosen.near)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(chosen.jobs) as pool:
            for number, (mutation, seen) in enumerate(pool.map(judged, wanted), start=1):
                word = {True: "seen  ", False: "UNSEEN", None: "no way to tell:"}[seen]
                print(f"{number}/{len(wanted)} {word} {mutation}", flush=True)
                if seen is False:
                    unseen.append(mutation)
    made = [mutation for mutation in wanted if not red[mutation.path]]
    share = 1 - len(unseen) / max(len(made), 1)
    print(f"{len(made)} changes, {len(made) - len(unseen)} seen ({share:.1%})")
    for path, files in red.items():
        if files:
            print(f"{path} is left out: tests fail without a change, among {' '.join(files)}")
    for mutation in unseen:
        print(f"unseen: {mutation}")
    return int(share < WANTED)


if __name__ == "__main__":
    sys.exit(main())
