"""An instance on llama.cpp, planned and loaded; functions derive from it and add what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.decode.sampling import recommended
from functions.engines.llama.decoder_factory import HOST_CACHE, build_decoder, make_speculator, with_host_cache
from functions.engines.llama.memory import devices, plan
from functions.engines.llama.model import adapters
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.prefix_cache.persistence import PrefixPersistence
from host.function import Instance, InstanceInfo, Load, Plan, Progress


class LlamaInstance(Instance):
    """A GGUF file with a context and a decode thread."""

    names: tuple[str, ...] = ()
    """Names of the model without an adapter."""
    persistence: PrefixPersistence | None = None
    """Saves prefixes to disk; None if the options do not ask for it."""

    def __init__(self, model: Model, context: Context, decoder: Decoder, chosen: Plan, settings: LlamaOptions) -> None:
        self.model = model
        self.decoder = decoder
        self.settings = settings
        self.sampling = recommended(model.metadata)
        """Sampling defaults of the model file."""
        self.length = chosen.context or model.trained
        """Tokens per slot."""
        self._context = context
        self._plan = chosen

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Plan the load; see `memory.plan`. Raises `LoadFailed` for files that cannot be used."""
        return with_host_cache(plan.make(load), load.engine_options(LlamaOptions), load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the weights and start the decode thread."""
        settings = load.engine_options(LlamaOptions)
        target = devices.from_detail(plan.detail)
        total = Path(load.path).stat().st_size if Path(load.path).is_file() else 0

        def report(done: float) -> None:
            progress("weights", int(done * total), total)

        model = Model.open(load.path, settings, target, progress=report)
        context: Context | None = None
        try:
            progress("cache")
            length = plan.context or model.trained
            context = Context.open(
                model, settings, target, context=length, slots=plan.slots, threads=max(1, load.threads)
            )
            context.adapters = adapters.Adapters.open(model.handle, settings.adapters, Path(load.base))
            host_cache, speculator = int(plan.detail.get(HOST_CACHE, 0)), make_speculator(model, settings, load, plan)
            decoder = build_decoder(
                model, context, settings, length=length, slots=plan.slots, host_cache=host_cache, speculator=speculator
            )
            instance = cls(model, context, decoder, plan, settings)
            instance.persistence = PrefixPersistence.of(load, plan, settings)
            if instance.persistence is not None:
                instance.persistence.restore(context, decoder.slots)
            instance.names = (load.manifest.name, *load.manifest.aliases)
        except BaseException:
            if context is not None:
                context.close()
            model.close()
            raise
        try:
            instance.prepare()
        except BaseException:
            instance.close()
            raise
        return instance

    def adapter(self, model: str, asked: str | None) -> str | None:
        """Return the adapter that a request wants, by `model: NAME@ADAPTER` or by its field `adapter`, or None.

        Raises `ModelNotFound` and `InvalidRequest` with the adapters there are.
        """
        return adapters.choose(model, asked, names=self.names, known=tuple(self.settings.adapters))

    def prepare(self) -> None:
        """Hook for functions, called once the model is loaded; may raise `LoadFailed`."""

    def info(self) -> InstanceInfo:
        """Return capacity, context and the model's description."""
        detail = {"description": self.model.description(), "trained_context": self.model.trained}
        return InstanceInfo(capacity=self._plan.slots, context=self.length, slots=self._plan.slots, detail=detail)

    def close(self) -> None:
        """End the decode thread and free context and model."""
        self.decoder.close()
        if self.persistence is not None:
            self.persistence.save(self._context, self.decoder.slots)
        self._context.close()
        self.model.close()
