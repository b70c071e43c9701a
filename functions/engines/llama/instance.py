"""An instance on llama.cpp: planned, loaded, and ready to generate; functions derive from it and add what they answer.

It knows the life of a model in a worker, and nothing of chats or wire formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import msgspec

from functions.engines.llama import devices, plan
from functions.engines.llama.context import Context
from functions.engines.llama.decoder import Decoder
from functions.engines.llama.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.sampling import recommended
from functions.engines.llama.slots import Slots
from host.function import Facts, Instance, Load, Plan, Progress


class LlamaInstance(Instance):
    """A GGUF file with a context and a decode thread."""

    options: ClassVar[type[msgspec.Struct]] = LlamaOptions

    def __init__(self, model: Model, context: Context, decoder: Decoder, chosen: Plan, settings: LlamaOptions) -> None:
        self.model = model
        self.decoder = decoder
        self.settings = settings
        self.sampling = recommended(model.metadata)
        """What is used where a request says nothing."""
        self.length = chosen.context or model.trained
        """Tokens per slot."""
        self._context = context
        self._plan = chosen

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Say how large a context fits, and the bytes of it all. Raises `LoadFailed` for files it cannot use."""
        return plan.make(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the weights and start the decode thread."""
        settings = msgspec.msgpack.decode(load.options, type=LlamaOptions)
        target = devices.choose(load.manifest.device)
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
            windowed = bool(model.window) and not settings.sliding_window_full
            slots = Slots(
                plan.slots,
                context,
                reuse=settings.prefix_reuse,
                shares=not model.recurrent and not windowed,
                window=model.window if windowed else 0,
            )
            decoder = Decoder(context, model.vocabulary, slots, length=length)
            instance = cls(model, context, decoder, plan, settings)
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

    def prepare(self) -> None:
        """Make what the function needs once the model is there; may raise `LoadFailed`."""

    def facts(self) -> Facts:
        """Say what is served."""
        detail = {"description": self.model.description(), "trained_context": self.model.trained}
        return Facts(capacity=self._plan.slots, context=self.length, slots=self._plan.slots, detail=detail)

    def close(self) -> None:
        """End the decode thread and free context and model."""
        self.decoder.close()
        self._context.close()
        self.model.close()
