"""What every handler and response has in common: event streams, error bodies, request ids.

A function's handler asks for the host by type: `async def handler(data: JSONBody[…], host: HostDependency)`.
"""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from host.function import Host

HostDependency = NamedDependency[SkipValidation[Host]]

__all__ = ("HostDependency",)
