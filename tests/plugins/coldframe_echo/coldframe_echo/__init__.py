"""The plug-in: it registers the function `echo` and the engine `echo`, which needs no library and loads any text file.

Written as an outsider would write one: all it knows of coldframe is the public contract.
"""

from __future__ import annotations

from coldframe_echo.operations import ECHO, ECHO_ONCE
from coldframe_echo.options import EchoOptions
from host.function import Engine, Function
from host.hooks import hookimpl


@hookimpl
def coldframe_engines() -> list[Engine]:
    """Register the engine: no requirements, files that end in `.echo`."""
    return [
        Engine(
            name="echo",
            summary="Says back what it hears",
            preload=("coldframe_echo.instance",),
            suffixes=(".echo",),
            options=EchoOptions,
        )
    ]


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function, its two operations and its route, which only the host imports."""
    from coldframe_echo.routes import echo

    return [
        Function(
            name="echo",
            summary="Says back what it hears, at the pace and with the faults it is asked for",
            operations=(ECHO, ECHO_ONCE),
            instances={"echo": "coldframe_echo.instance:EchoInstance"},
            tasks=("text-echo",),
            routes=(echo,),
            cli="coldframe_echo.cli:EchoCli",
        )
    ]
