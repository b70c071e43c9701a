"""`coldframe pull`: downloads models through the sources, with a progress bar; loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from host.cli import Failure
from host.cli.defaults import manifests_option
from host.errors import ColdframeError

if TYPE_CHECKING:
    from host.cli.manifests import ManifestSet
    from host.function import ModelRequest, Progress


@click.command("pull")
@click.argument("names", metavar="NAME|MODEL...", nargs=-1, required=True)
@manifests_option
@click.option("--revision", metavar="REVISION", help="Branch, tag or commit of a MODEL on the hub; a NAME has its own.")
def pull_command(names: tuple[str, ...], manifests: Path | None, revision: str | None) -> None:
    """Fetch models before they are called, and print where each is.

    NAME is a manifest's name or alias; MODEL is what could stand in a manifest's `model`: org/repo, org/repo:Q4_K_M,
    org/repo/file.gguf, package:name/file or ./path. What is here already is not fetched again, and what was cut off
    goes on.
    """
    from host.cli import logs
    from host.cli.manifests import ManifestSet
    from host.sources.resolve import check, resolve

    logs.set_up("warning")
    shelf = ManifestSet(manifests)
    failed = 0
    for name in names:
        try:
            wanted = _wanted(shelf, name, revision)
            check(shelf.registry.sources, wanted)
            with _bar(name) as progress:
                path = resolve(shelf.registry.sources, wanted, progress)
            click.echo(path)
        except ColdframeError as error:
            failed += 1
            Failure(f"{name}: {error}" if len(names) > 1 else str(error)).show()
    if failed:
        raise SystemExit(1)


def _wanted(shelf: ManifestSet, name: str, revision: str | None) -> ModelRequest:
    """Return what to fetch: by the manifest of that name, else by the text itself where it can be a model."""
    from host.errors import ManifestError
    from host.function import ModelRequest

    try:
        entry = shelf.find(name)
    except ManifestError:
        if "/" not in name and ":" not in name:
            raise
        registry = shelf.registry
        return ModelRequest(
            model=name,
            base=Path.cwd(),
            revision=revision,
            formats=registry.formats,
            endings=registry.endings,
        )
    if revision is not None:
        raise click.UsageError(f"--revision is for models; the manifest `{name}` has its own key `revision`")
    return shelf.wanted(entry.manifest, entry.function, entry.file.parent)


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    """Show bytes done of bytes in all on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(escape(name), total=None)

        def report(stage: str, done: int = 0, total: int = 0) -> None:
            bars.update(task, completed=done, total=total or None)

        yield report
