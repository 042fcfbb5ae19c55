"""``drv train NAME``: a configuration from file and command line, its plan, and the run.

Later settings win: the trainer's defaults, the preset, the file, the command line.  The
options are made of the trainer's own settings, so that ``--help`` shows each with its value.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from drv_env.errors import SettingError
from replay.model_folders import model_folder
from trainers.commands.option_names import as_option, dotted_options, naming_options
from trainers.extras import lacking
from trainers.registry import import_plugins
from trainers.runs import builtin_trainers
from trainers.runs.presets import PRESETS, preset
from trainers.runs.run_config import Run
from trainers.runs.trainer_registry import TRAINERS, Job, Trainer

if TYPE_CHECKING:
    from trainers.runs.config_files import Settings

_ = builtin_trainers  # which registers them
_OPTIONS: Mapping[str, str] = {
    "config": "A YAML file of settings.",
    "preset": f"Settings under the file's: {', '.join(PRESETS)}.",
    "plan": "Print the plan and stop.",
}


def run_train(arguments: Sequence[str]) -> None:
    """Run ``drv train`` with these arguments.

    Raises:
        SystemExit: after help, or for options that are none.
        DrvError: when something can't work.
        KeyboardInterrupt: after Ctrl-C, once the state is saved.
    """
    names = [argument for argument in arguments[:1] if not argument.startswith("-")]
    if not names:
        sys.stdout.write(_overview())
        if not {"-h", "--help"} & set(arguments):
            raise SystemExit(2)
        return
    name, rest, passed_on = names[0], list(arguments[1:]), None
    if "--" in rest:
        cut = rest.index("--")
        rest, passed_on = rest[:cut], tuple(rest[cut + 1 :])
    early = _early(rest)
    trainer, defaults = _beneath(name, early, bool({"-h", "--help"} & set(rest)))
    config = parse_options(trainer, defaults, rest)
    if passed_on:
        config = _with_flags(config, trainer, passed_on)
    # what follows may take seconds to import, and help has been shown by now
    from rich.console import Console

    from trainers.commands.rolling import teller

    say = teller(Console(stderr=True))
    # settings of a file are known by their places there, which tell the options too
    with naming_options({} if early.config else dotted_options(config)):
        job = make_job(trainer, config, say)
        job.plan.show(Console())
        if not early.plan:
            job.run()


def _beneath(name: str, early: argparse.Namespace, helping: bool) -> tuple[Trainer, Any]:
    """The trainer, and its settings beneath the command line's.

    Help is shown whatever is not installed: with the trainer's own values, where the file's or
    the preset's can't be read without it.
    """
    try:
        layers = read_layers(early.config, early.preset, early.plugins)
        import_plugins(layers.plugins)
        return TRAINERS[name], layers.over(TRAINERS[name])
    except ImportError as error:
        missing = lacking(error)
        if missing is None or not helping:
            raise
        sys.stderr.write(f"drv: the values of file and preset are not shown: {missing}\n")
        return TRAINERS[name], TRAINERS[name].defaults


@dataclasses.dataclass(frozen=True)
class Layers:
    """Settings beneath the command line's.

    Attributes:
        preset: a preset's.
        file: a file's.
        source: what the file is called.
        plugins: modules to import.
    """

    preset: Mapping[str, Any]
    file: Settings
    source: str
    plugins: tuple[str, ...]

    def over(self, trainer: Trainer) -> Any:
        """The trainer's settings with these over its defaults.

        Raises:
            SettingError: naming file and setting.
        """
        known = {each.name for each in dataclasses.fields(trainer.defaults)}
        if self.preset and not set(self.preset) <= known:
            fit = [name for name, found in PRESETS.items() if set(found) <= known]
            raise SettingError(
                f"the preset has {', '.join(sorted(set(self.preset) - known))}, which "
                f"{trainer.name} has not; for it there are {', '.join(fit) or 'none'}"
            )
        own = {"plugins": self.plugins} if self.plugins and "plugins" in known else {}
        if not (self.preset or self.file or own):
            return trainer.defaults
        from trainers.runs.config_files import apply_settings, merged

        return apply_settings(trainer.defaults, merged(self.preset, self.file, own), self.source)


def read_layers(
    config: str | Path | None, name: str | None = None, plugins: Sequence[str] | None = None
) -> Layers:
    """What file and preset say; the command line's preset and plugins win.

    Raises:
        SettingError: when a file or preset can't be used.
    """
    file: Settings = {}
    if config is not None:
        from trainers.runs.config_files import read_settings

        file = read_settings(config)
    chosen = file.pop("preset", None)
    named = file.pop("plugins", None)
    named = [] if named is None else named
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise SettingError(f"{config}: plugins is a list of modules' names, got {named!r:.80}")
    chosen = name or chosen
    source = "the defaults" if config is None else str(config)
    found = {} if chosen is None else preset(str(chosen), config if name is None else None)
    return Layers(found, file, source, tuple(plugins or named))


def make_job(trainer: Trainer, config: Any, say: Callable[[str], None]) -> Job:
    """The job of a configuration, on the backend that it names.

    Raises:
        DrvError: naming what can't work.
    """
    if isinstance(config, Run):
        section = replace(config.model, folder=str(model_folder(config.model.folder)))
        config = replace(config, model=section if config.model.folder else config.model)
    if getattr(config, "backend", "device") == "openrlhf":
        from trainers.runs.cluster_run import prepare_cluster

        return prepare_cluster(config, trainer.name, say)
    return trainer.prepare(config, trainer.name, say)


def parse_options(trainer: Trainer, defaults: Any, arguments: Sequence[str]) -> Any:
    """The settings after the command line's.

    Raises:
        SystemExit: after help; for options that are none, or values that can't work, which
            are named.
    """
    fields: list[Any] = [
        (name, _early_option(name, told), False if name == "plan" else None)
        for name, told in _OPTIONS.items()
    ]
    fields.append(("plugins_", _plugins_option(), None))
    fields.append(("settings", Annotated[type(defaults), tyro.conf.arg(name="")], defaults))
    command = dataclasses.make_dataclass(
        "Train",
        [(name, kind, dataclasses.field(default=value)) for name, kind, value in fields],
        kw_only=True,
        frozen=True,
    )
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            parsed: Any = tyro.cli(
                command,
                prog=f"drv train {trainer.name}",
                description=f"{trainer.summary[:1].upper()}{trainer.summary[1:]}.",
                args=list(arguments),
                config=(tyro.conf.AvoidSubcommands,),
            )
    except SystemExit as stopped:
        refused = _refused_value(stopped)
        if refused is None:
            sys.stderr.write(told.getvalue())
            raise
        raise refused from None
    return parsed.settings


def _refused_value(stopped: SystemExit) -> SettingError | None:
    """What a section says of one of its options' values, where that is why tyro stopped."""
    failed = stopped.__context__
    error = None if failed is None else failed.__context__
    section = getattr(failed, "arg", None)
    if not isinstance(error, SettingError) or not isinstance(section, str):
        return None
    place = section.removeprefix("settings").lstrip(".")
    if error.setting is None:
        return SettingError(f"{as_option(place)}: {error}")
    return error.called(as_option(f"{place}.{error.setting}".lstrip(".")))


def _early_option(name: str, told: str) -> Any:
    if name == "plan":
        return Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help=told)]
    return Annotated[
        str | None, tyro.conf.arg(help=told, metavar=name.upper(), help_behavior_hint="")
    ]


def _plugins_option() -> Any:
    told = "Modules to import first, which register trainers or advantages."
    hint = tyro.conf.arg(name="plugins", help=told, metavar="[MODULE …]", help_behavior_hint="")
    return Annotated[tuple[str, ...] | None, hint]


def _early(arguments: Sequence[str]) -> argparse.Namespace:
    """The options that decide which others there are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, prog="drv train")
    parser.add_argument("--config")
    parser.add_argument("--preset")
    parser.add_argument("--plugins", nargs="*")
    parser.add_argument("--plan", action="store_true")
    return parser.parse_known_args(list(arguments))[0]


def _overview() -> str:
    width = max(map(len, TRAINERS.names()))
    lines = [
        "usage: drv train NAME [--config FILE] [--preset NAME] [--plan] [--SETTING VALUE …]",
        "",
        "trainers:",
        *(f"  {name:<{width}}  {TRAINERS[name].summary}" for name in TRAINERS.names()),
        "",
        f"presets: {', '.join(PRESETS)}",
        "",
        "drv train NAME --help shows every setting with its value; with --config, the file's.",
        "With --backend openrlhf, what follows a bare -- goes to OpenRLHF's command line as it is.",
    ]
    return "\n".join(lines) + "\n"


def _with_flags(config: Any, trainer: Trainer, flags: tuple[str, ...]) -> Any:
    """The configuration with further flags for OpenRLHF's command line."""
    if not isinstance(config, Run):
        raise SettingError(f"{trainer.name} passes nothing on: {' '.join(flags)!r:.80}")
    cluster = replace(config.cluster, flags=(*config.cluster.flags, *flags))
    return replace(config, cluster=cluster)
