"""How the host's own handlers ask for the runtime."""

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from host.runtime import Runtime

RuntimeDependency = NamedDependency[SkipValidation[Runtime]]
