"""What plug-ins registered: functions, engines, sources, placements, each with where it came from or why it is off.

Built from the entry points of the group `coldframe`; a plug-in that cannot be imported disables only itself.
"""

from __future__ import annotations

import difflib
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
from host.function import Engine, Function, Source
from host.manifest import Manifest
from host.manifest.options import joined
from host.placement.handle import Placement

log = structlog.get_logger(__name__)


class Origin(msgspec.Struct, kw_only=True, frozen=True):
    """A plug-in: its entry point, the distribution it is in, and why it is disabled, if it is."""

    plugin: str
    module: str
    distribution: str
    disabled: str | None = None


class Registry:
    """Everything that can be named in a manifest."""

    def __init__(self, plugins: pluggy.PluginManager, origins: Sequence[Origin] = ()) -> None:
        self._plugins = plugins
        self.origins = tuple(origins)
        self.functions: dict[str, Function] = {}
        self.engines: dict[str, Engine] = {}
        self.placements: dict[str, Placement] = {}
        self.sources: list[Source] = []
        self.came_from: dict[str, str] = {}
        self.disabled: dict[str, str] = {o.plugin: o.disabled for o in self.origins if o.disabled}
        """Plug-in, `engine NAME` or `function NAME` -> the reason."""
        for name, plugin in plugins.list_name_plugin():
            self._collect(name, plugin)
        self._refuse_clashing_options()
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
        return any(impl.function.__module__ != own for impl in self._plugins.hook.coldframe_event.get_hookimpls())

    def observe(self, event: Event) -> None:
        """Tell every plug-in of an event; one that raises is logged and hurts nobody."""
        try:
            self._plugins.hook.coldframe_event(event=event)
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
        """Return the engine for a manifest; None when it is `auto` and only the files could tell.

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
        folders = [name for name in able if not self._engine(name).suffixes]
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

    def _named(self, name: str, function: Function) -> Engine:
        if name not in function.instances:
            allowed = ", ".join(function.instances)
            raise ManifestError(f"`{function.name}` does not run on `{name}`; it runs on: {allowed}", key="engine")
        reason = self.disabled.get(f"engine {name}")
        if reason is not None or name not in self.engines:
            raise FunctionDisabled(f"The engine `{name}` is disabled: {reason or 'no plug-in registers it'}.")
        return self.engines[name]

    def _engine(self, name: str) -> Engine:
        return self.engines.get(name) or Engine(name=name, summary="")

    def _collect(self, name: str, plugin: Any) -> None:
        """Take what one plug-in registers; a hook that raises disables the plug-in."""
        try:
            for function in _call(plugin, "coldframe_functions"):
                self._add(self.functions, function.name, function, name)
            for engine in _call(plugin, "coldframe_engines"):
                self._add(self.engines, engine.name, engine, name)
            for placement in _call(plugin, "coldframe_placements"):
                self._add(self.placements, placement.name, placement, name)
            self.sources.extend(_call(plugin, "coldframe_sources"))
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
        """Disable functions one of whose options an engine of theirs has too: nobody could tell which one is meant."""
        for name, function in list(self.functions.items()):
            try:
                for engine in [self.engines[engine] for engine in function.instances if engine in self.engines]:
                    joined(engine.options, function.options)
            except TypeError as error:
                del self.functions[name]
                self.disabled[f"function {name}"] = str(error)
                log.error("a function is disabled", function=name, reason=str(error))

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


def _call(plugin: Any, hook: str) -> Sequence[Any]:
    implementation = getattr(plugin, hook, None)
    return tuple(implementation()) if implementation is not None else ()


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
