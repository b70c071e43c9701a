"""The routes through a model that treats queries and documents differently: sentence-transformers' Router, once `Asym`.

Each route is a whole model with its own layout; modules before and after the Router belong to all routes. A model
without a Router has one route, named "".
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence import layout as layouts
from functions.engines.checkpoint.sentence import modules
from functions.engines.checkpoint.sentence.layout import Layout, LayoutOverrides
from functions.engines.checkpoint.sentence.modules import ROUTERS, Module
from host.errors import LoadFailed

TextRole = Literal["query", "document", ""]
"""The role of a text in retrieval; empty where the request names none."""

_NAMES: dict[TextRole, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "doc", "passage", "corpus"),
    "": (),
}
"""Names of routes for it; only the first is known to sentence-transformers, the others are those of older folders."""


class Router(msgspec.Struct, kw_only=True, frozen=True):
    """The routes that texts can take, by name, and which one is for what."""

    layouts: dict[str, Layout]
    routes: dict[TextRole, str]
    """The route for each role; roles without a route are missing."""


def read(folder: Folder, overrides: LayoutOverrides) -> Router:
    """Return the routes through the model in the folder; raises `LoadFailed` for what is not served."""
    listed = modules.read(folder)
    places = [at for at, module in enumerate(listed) if module.kind in ROUTERS]
    if not places:
        return Router(layouts={"": layouts.of(folder, listed, overrides)}, routes=dict.fromkeys(_NAMES, ""))
    if len(places) > 1:
        raise LoadFailed("modules.json: several Routers in a model are not served")
    at = places[0]
    inner, parameters, place = _router(folder, listed[at])
    routes = _routes(inner, parameters, place)
    if not routes:
        raise LoadFailed(f"{place}: no route is for texts; there are {', '.join(inner)}")
    found = {
        name: layouts.of(folder, [*listed[:at], *inner[name], *listed[at + 1 :]], overrides)
        for name in dict.fromkeys(routes.values())
    }
    kinds = {name: layout.kinds for name, layout in found.items()}
    if len(set(kinds.values())) > 1:
        described = "; ".join(f"{name}: {', '.join(made)}" for name, made in kinds.items())
        raise LoadFailed(f"{place}: its routes make vectors of different kinds ({described}), which is not served")
    return Router(layouts=found, routes=routes)


def _router(folder: Folder, router: Module) -> tuple[dict[str, list[Module]], dict[str, Any], str]:
    """Return the modules of each route, the Router's parameters, and the file that says so."""
    start = f"{router.path}/" if router.path else ""
    names = (f"{start}router_config.json", f"{start}config.json")
    place = next((name for name in names if folder.has(name)), names[0])
    config = folder.mapping(place)
    types, structure = config.get("types"), config.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict) or not structure:
        raise LoadFailed(f"{place}: expected `types` and `structure`, which say what the routes are made of")
    inner: dict[str, list[Module]] = {}
    for name, ids in structure.items():
        unknown = next((one for one in ids if one not in types), None)
        if unknown is not None:
            raise LoadFailed(f"{place}: {unknown!r} of the route {name!r} is not among its types")
        inner[name] = [modules.one(folder, str(types[one]), f"{start}{one}", place) for one in ids]
        if any(module.kind in ROUTERS for module in inner[name]):
            raise LoadFailed(f"{place}: a Router within a Router is not served")
    parameters = config.get("parameters") or {}
    return inner, parameters, place


def _routes(inner: Mapping[str, Sequence[Module]], parameters: Mapping[str, Any], place: str) -> dict[TextRole, str]:
    """Return the route for each role, chosen as sentence-transformers does."""
    mappings = _mappings(parameters.get("route_mappings") or {}, place)
    default = parameters.get("default_route")
    if default is None and parameters.get("allow_empty_key", True):
        default = next(iter(inner))
    found = {role: _route(role, inner, mappings, default) for role in _NAMES}
    unknown = next((name for name in found.values() if name is not None and name not in inner), None)
    if unknown is not None:
        raise LoadFailed(f"{place}: the route {unknown!r} is not there; there are {', '.join(inner)}")
    return {role: name for role, name in found.items() if name is not None}


def _route(
    role: TextRole,
    inner: Mapping[str, Sequence[Module]],
    mappings: Mapping[tuple[Any, Any], str],
    default: str | None,
) -> str | None:
    task = role or None
    for key in ((task, "text"), (task, None), (None, "text"), (None, None)):
        if key in mappings:
            return mappings[key]
    named = next((name for name in (*_NAMES[role], "text") if name in inner), None)
    return named if named is not None or role else default


def _mappings(said: Mapping[str, str], place: str) -> dict[tuple[Any, Any], str]:
    """Return the routes by (task, modality), which the file spells as Python does."""
    found: dict[tuple[Any, Any], str] = {}
    for spelt, name in said.items():
        try:
            task, modality = ast.literal_eval(spelt)
        except (ValueError, SyntaxError, TypeError):
            raise LoadFailed(
                f"{place}: route_mappings has {spelt!r}, which is not a pair of task and modality"
            ) from None
        found[task, modality if isinstance(modality, str | None) else tuple(modality)] = name
    return found
