"""What plug-ins registered: functions, engines, sources, placements, each with where it came from or why it is off.

Built from the entry points of the group `coldframe`; a plug-in that cannot be imported disables only itself.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib.util
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import msgspec
import pluggy
import structlog

from host import hooks
from host.errors import FunctionDisabled, ManifestError
from host.events import Event
from host.file_format import FileFormat, SingleFile
from host.function import Engine, Function, ModelRequest, Source
from host.manifest import Manifest
from host.manifest.options import joined
from host.placement.handle import Placement
from host.sources.folder import listing

log = structlog.get_logger(__name__)
OWN_PATHS = (
    "/v1/models", "/models", "/v1/functions", "/v1/functions/events", "/livez", "/readyz", "/health", "/metrics",
    "/schema",
)  # fmt: skip
"""Paths of the host's own routes without parameters."""


class Origin(msgspec.Struct, kw_only=True, frozen=True):
    """A plug-in: its entry point, the distribution it is in, and why it is disabled, if it is."""

    plugin: str
    module: str
    distribution: str
    disabled: str | None = None


class Registry:
    """Everything that can be named in a manifest."""

    def __init__(self, plugins: pluggy.PluginManager, origins: Sequence[Origin] = ()) -> None:
        self.origins = tuple(origins)
        self.functions: dict[str, Function] = {}
        self.engines: dict[str, Engine] = {}
        self.placements: dict[str, Placement] = {}
        self.sources: list[Source] = []
        self.came_from: dict[str, str] = {}
        self.disabled: dict[str, str] = {o.plugin: o.disabled for o in self.origins if o.disabled}
        """Plug-in, `engine NAME` or `function NAME` -> the reason."""
        hooks_of = {name: _hooks(name, plugin) for name, plugin in plugins.list_name_plugin()}
        for name, plugin in plugins.list_name_plugin():
            self._collect(name, plugin, hooks_of[name])
        observers = [hook.coldframe_event for hook in hooks_of.values()]
        self._observers = [observer for observer in observers if observer.get_hookimpls()]
        self._refuse_clashing_options()
        self._refuse_clashing_paths()
        self._find_missing_engines()
        self.engines = {name: self._preloading(engine) for name, engine in self.engines.items()}

    @classmethod
    def discover(cls) -> Registry:
        """Return the registry of all installed plug-ins."""
        plugins = pluggy.PluginManager(hooks.GROUP)
        plugins.add_hookspecs(hooks)
        return cls(plugins, [_register(plugins, entry) for entry in _ordered(entry_points(group=hooks.GROUP))])

    @property
    def observed(self) -> bool:
        """Whether a plug-in besides the host's own metrics observes events."""
        own = "host.telemetry"
        found = (implementation for observer in self._observers for implementation in observer.get_hookimpls())
        return any(implementation.function.__module__ != own for implementation in found)

    def observe(self, event: Event) -> None:
        """Pass an event to every plug-in; one that raises is logged and keeps the event from no other one."""
        for observer in self._observers:
            try:
                observer(event=event)
            except Exception as error:
                log.error("a plug-in failed to observe an event", exc_info=error)

    def function(self, task: str) -> Function:
        """Return the function for a manifest's `task`, by its name or a pipeline name; raises `ManifestError`."""
        for function in self.functions.values():
            if task == function.name or task in function.tasks:
                return function
        known = sorted({name for function in self.functions.values() for name in (function.name, *function.tasks)})
        near = difflib.get_close_matches(task, known, n=1)
        served = ", ".join(sorted(self.functions)) or "nothing"
        hint = f"did you mean `{near[0]}`?" if near else f"served here: {served}"
        reasons = "".join(f" ({what} is disabled: {why})" for what, why in self.disabled.items() if task in what)
        raise ManifestError(f"no function serves the task `{task}`; {hint}{reasons}", key="task")

    def engine(self, manifest: Manifest, function: Function, path: Path | None = None) -> Engine | None:
        """Return the engine for a manifest; None when it is `auto` and only the files decide.

        Raises `ManifestError` for an engine that does not exist or cannot serve the function, `FunctionDisabled` for
        one that is missing or broken.
        """
        if manifest.engine != "auto":
            return self._named(manifest.engine, function)
        able = [name for name in function.instances if name in self.engines or f"engine {name}" in self.disabled]
        suffix = _suffix(manifest, path)
        for name in able:
            if suffix and suffix in self._engine(name).suffixes:
                return self._named(name, function)
        folders = self._folder_engines(able, path)
        if path is None and suffix is None and len(able) > 1:
            return None
        for name in folders if suffix is None else []:
            return self._named(name, function)
        if path is None:
            return None
        raise ManifestError(
            f"no engine of `{function.name}` runs `{path.name}`; its engines are {', '.join(function.instances)}",
            key="model",
        )

    @property
    def formats(self) -> tuple[FileFormat, ...]:
        """The file formats of all engines, whether their libraries are installed or not."""
        return tuple(dict.fromkeys(one for engine in self.engines.values() for one in _formats(engine)))

    @property
    def endings(self) -> tuple[str, ...]:
        """The file endings of all engines."""
        return tuple(dict.fromkeys(ending for engine in self.engines.values() for ending in engine.suffixes))

    def request(self, manifest: Manifest, base: Path, function: Function) -> ModelRequest:
        """Return what a source is asked for; an engine that cannot run the model is reported elsewhere."""
        engine = None
        with contextlib.suppress(ManifestError, FunctionDisabled):
            engine = self.engine(manifest, function)
        return ModelRequest(
            model=manifest.model,
            base=base,
            quantization=manifest.quantization,
            revision=manifest.revision,
            formats=(engine and _formats(engine)) or self.formats,
            required=bool(engine and engine.suffixes),
            endings=self.endings,
        )

    def adapters(self, manifest: Manifest, function: Function) -> tuple[str, ...]:
        """Return the names of a manifest's adapters, which clients choose by `NAME@ADAPTER`."""
        options = [engine.adapters for engine in self.candidates(manifest, function) if engine.adapters]
        found = [manifest.options.get(option) for option in dict.fromkeys(options)]
        return tuple(str(name) for adapters in found if isinstance(adapters, dict) for name in adapters)

    def consents(self, manifest: Manifest, function: Function) -> tuple[str, ...]:
        """Return the options by which a manifest lets code in the model's own folder run."""
        options = [option for engine in self.candidates(manifest, function) for option in engine.consent]
        return tuple(option for option in dict.fromkeys(options) if manifest.options.get(option) is True)

    @property
    def consent_options(self) -> tuple[str, ...]:
        """The options of all engines by which a manifest lets code in the model's own folder run."""
        return tuple(dict.fromkeys(option for engine in self.engines.values() for option in engine.consent))

    def candidates(self, manifest: Manifest, function: Function) -> list[Engine]:
        """Return the engine of a manifest, or all that may turn out to run it when only the files decide."""
        names = function.instances if manifest.engine == "auto" else (manifest.engine,)
        return [self.engines[name] for name in names if name in self.engines]

    def _named(self, name: str, function: Function) -> Engine:
        if name not in function.instances:
            allowed = ", ".join(function.instances)
            raise ManifestError(f"`{function.name}` does not run on `{name}`; it runs on: {allowed}", key="engine")
        reason = self.disabled.get(f"engine {name}")
        if reason is not None or name not in self.engines:
            raise FunctionDisabled(f"The engine `{name}` is disabled: {reason or 'no plug-in registers it'}.")
        return self.engines[name]

    def _folder_engines(self, able: Sequence[str], path: Path | None) -> list[str]:
        """Return the engines that take folders, those first whose format this folder has."""
        found = [name for name in able if not self._engine(name).suffixes]
        if path is None or len(found) < 2:
            return found
        names = listing(path)
        return sorted(found, key=lambda name: not any(one.contains(names) for one in self._engine(name).formats))

    def _engine(self, name: str) -> Engine:
        return self.engines.get(name) or Engine(name=name, summary="")

    def _collect(self, name: str, plugin: Any, hook: pluggy.HookRelay) -> None:
        """Take what one plug-in registers; a hook that raises disables the plug-in."""
        try:
            _check_marked(plugin)
            for function in _flat(hook.coldframe_functions()):
                self._add(self.functions, function.name, function, name)
            for engine in _flat(hook.coldframe_engines()):
                self._add(self.engines, engine.name, engine, name)
            for placement in _flat(hook.coldframe_placements()):
                self._add(self.placements, placement.name, placement, name)
            self.sources.extend(_flat(hook.coldframe_sources()))
        except Exception as error:
            self.disabled[name] = _reason(error)
            log.error("a plug-in is disabled", plugin=name, exc_info=error)

    def _add(self, where: dict[str, Any], key: str, value: Any, plugin: str) -> None:
        if key in where:
            raise ValueError(f"`{key}` is registered by `{self.came_from[key]}` already")
        where[key] = value
        self.came_from[key] = plugin

    def _preloading(self, engine: Engine) -> Engine:
        """Return the engine with the modules of all instances that run on it among what its forkserver imports."""
        instances = [f.instances[engine.name] for f in self.functions.values() if engine.name in f.instances]
        modules = [reference.partition(":")[0] for reference in instances]
        return msgspec.structs.replace(engine, preload=tuple(dict.fromkeys((*engine.preload, *modules))))

    def _refuse_clashing_options(self) -> None:
        """Disable functions one of whose options an engine of theirs has too: which one is meant would not be clear."""
        for name, function in list(self.functions.items()):
            try:
                for engine in [self.engines[engine] for engine in function.instances if engine in self.engines]:
                    joined(engine.options, function.options)
            except TypeError as error:
                del self.functions[name]
                self.disabled[f"function {name}"] = str(error)
                log.error("a function is disabled", function=name, reason=str(error))

    def _refuse_clashing_paths(self) -> None:
        """Disable functions with a path of the host's or of a function before them: the server could not start."""
        taken = dict.fromkeys(OWN_PATHS, "the host itself")
        for name, function in list(self.functions.items()):
            paths = _paths(function)
            clash = next((path for path in sorted(paths) if path in taken), None)
            if clash is None:
                taken.update(dict.fromkeys(paths, f"the function {name}"))
                continue
            del self.functions[name]
            self.disabled[f"function {name}"] = reason = f"its path {clash} is taken by {taken[clash]}"
            log.error("a function is disabled", function=name, reason=reason)

    def _find_missing_engines(self) -> None:
        for engine in self.engines.values():
            missing = [module for module in engine.requires if not _installed(module)]
            if missing:
                self.disabled[f"engine {engine.name}"] = f"not installed: {', '.join(missing)}"
        for function in self.functions.values():
            if not any(name in self.engines and f"engine {name}" not in self.disabled for name in function.instances):
                reasons = [self.disabled.get(f"engine {name}", "no such engine") for name in function.instances]
                self.disabled[f"function {function.name}"] = f"no engine to run on ({'; '.join(reasons)})"


def _register(plugins: pluggy.PluginManager, entry: EntryPoint) -> Origin:
    origin = Origin(plugin=entry.name, module=entry.value, distribution=entry.dist.name if entry.dist else "?")
    try:
        plugins.register(entry.load(), name=entry.name)
    except Exception as error:
        log.error("a plug-in is disabled", plugin=entry.name, exc_info=error)
        return msgspec.structs.replace(origin, disabled=_reason(error))
    return origin


def _ordered(entries: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Return ours first and each once, in a stable order: an outsider cannot take a built-in's name by being early."""
    found = {(entry.name, entry.value): entry for entry in entries}
    return sorted(found.values(), key=lambda entry: (not entry.dist or entry.dist.name != "coldframe", entry.name))


def _hooks(name: str, plugin: Any) -> pluggy.HookRelay:
    """Return the hooks as one plug-in implements them, called through a manager that holds no other plug-in.

    Pluggy's call of a hook on all plug-ins ends with the first exception, and says neither whose it was nor whose
    each result is. Called one plug-in at a time, a failure disables that one alone.
    """
    alone = pluggy.PluginManager(hooks.GROUP)
    alone.add_hookspecs(hooks)
    alone.register(plugin, name)
    return alone.hook


def _flat(results: Iterable[Iterable[Any]]) -> list[Any]:
    return [value for values in results for value in values]


def _formats(engine: Engine) -> tuple[FileFormat, ...]:
    return engine.formats or _single_file(engine.suffixes)


@functools.cache
def _single_file(suffixes: tuple[str, ...]) -> tuple[FileFormat, ...]:
    return (SingleFile(suffixes),) if suffixes else ()


def _paths(function: Function) -> set[str]:
    """Return the paths that a function serves, by its routes or by its operations alone."""
    paths = {path for route in function.routes for path in getattr(route, "paths", ())}
    return paths | {operation.path for operation in function.operations if operation.path and not operation.streams}


def _check_marked(plugin: Any) -> None:
    """Raise `TypeError` for a function that is named like a hook and not marked as one: pluggy would not call it."""
    for name in vars(hooks):
        made = getattr(plugin, name, None) if name.startswith(f"{hooks.GROUP}_") else None
        if callable(made) and not hasattr(made, f"{hooks.GROUP}_impl"):
            raise TypeError(f"`{name}` is not marked with host.hooks.hookimpl")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _suffix(manifest: Manifest, path: Path | None) -> str | None:
    """Return the ending that decides the engine, as far as the text or the files show one."""
    if path is not None:
        return None if path.is_dir() else path.suffix.lower()
    suffix = Path(manifest.model).suffix.lower()
    return suffix if 1 < len(suffix) <= 12 and suffix[1:].isalpha() else None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
