"""Chat on llama.cpp: renders messages by the chat template, generates text, and yields chat events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec

from functions.chat import conversation
from functions.chat.api import ChatEvent, ChatRequest, Done, Finish, FinishReason, Text
from functions.engines.chat_template import ChatTemplate, TemplateError
from functions.engines.llama.decode.generation import Finished, GenerationRequest, TextDelta
from functions.engines.llama.decode.sampling import Sampling
from functions.engines.llama.instance import LlamaInstance
from host.errors import ContextLengthExceeded, InvalidRequest, LoadFailed
from host.function import Usage

_INLINE_CHARACTERS = 16_384
"""Characters of a conversation that is rendered and tokenised on the event loop; a longer one goes to a thread."""


class LlamaChat(LlamaInstance):
    """A chat model in a GGUF file."""

    _template: ChatTemplate | None = None
    _no_template = "this model's file has no chat template: set `options.chat_template` in its manifest"

    def prepare(self) -> None:
        """Compile the chat template; an invalid one fails the load if it is the manifest's, else each request."""
        override = self.settings.chat_template
        source = override or self.model.chat_template()
        if source is None:
            return
        vocabulary = self.model.vocabulary
        try:
            bos, eos = vocabulary.spelled(vocabulary.bos), vocabulary.spelled(vocabulary.eos)
            self._template = ChatTemplate(source, bos=bos, eos=eos)
        except TemplateError as error:
            if override:
                raise LoadFailed(f"options.chat_template is not valid Jinja: {error}") from None
            self._no_template = f"the chat template in this model's file is not valid Jinja: {error}"

    def answer(self, request: ChatRequest) -> AsyncIterator[ChatEvent]:
        """Yield text as it is generated, a finish for each choice, and the usage.

        Raises `InvalidRequest` for messages that the template rejects, and `ContextLengthExceeded`.
        """
        return self._answer(request)

    async def _answer(self, request: ChatRequest) -> AsyncIterator[ChatEvent]:
        generations = await self._generation_requests(request)
        prompt = cached = completion = accepted = rejected = 0
        async with aclosing(self.decoder.generate(generations)) as generation:
            async for event in generation:
                match event:
                    case TextDelta(index=index, text=text):
                        yield Text(index, text)
                    case Finished(index=index, reason=reason):
                        if index == 0:
                            prompt, cached = event.prompt_tokens, event.cached_tokens
                        completion += event.completion_tokens
                        accepted += event.accepted_tokens
                        rejected += event.rejected_tokens
                        yield Finish(index, _reason(reason))
        yield Done(
            Usage(
                prompt_tokens=prompt,
                completion_tokens=completion,
                cached_tokens=cached,
                accepted_tokens=accepted,
                rejected_tokens=rejected,
            )
        )

    async def _generation_requests(self, request: ChatRequest) -> list[GenerationRequest]:
        adapter = self.adapter(request.model or "", request.adapter)
        length = sum(len(conversation.content_text(message)) for message in request.messages)
        if length > _INLINE_CHARACTERS:
            prompt = await asyncio.to_thread(self._prompt, request)
        else:
            prompt = self._prompt(request)
        left = self.length - len(prompt)
        if left <= 0:
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens, and this model's context holds {self.length}, "
                "of which at least one is for the answer",
                param="messages",
                extra={"n_prompt_tokens": len(prompt), "n_ctx": self.length},
            )
        limit = min(left, request.limit or left)
        sampling = self._sampling(request)
        return [
            GenerationRequest(
                prompt=prompt,
                limit=limit,
                sampling=_seeded(sampling, index),
                stops=request.stops,
                adapter=adapter,
                endless=bool(request.ignore_eos),
            )
            for index in range(request.choices)
        ]

    def _prompt(self, request: ChatRequest) -> list[int]:
        template = self._template
        if template is None:
            raise InvalidRequest(self._no_template, param="model")
        messages = conversation.to_template_messages(
            conversation.with_system(request.messages, self.settings.system),
            knows_system=template.knows_system,
            knows_developer=template.knows_developer,
        )
        kwargs = conversation.template_kwargs(request.reasoning_effort, request.chat_template_kwargs)
        if request.continue_final_message:
            text = template.render_open(messages, kwargs)
        else:
            text = template.render(messages, kwargs, open_answer=request.add_generation_prompt is not False)
        return self.model.vocabulary.prompt(text) or self._empty()

    def _empty(self) -> list[int]:
        raise InvalidRequest("the model's chat template makes an empty prompt of these messages", param="messages")

    def _sampling(self, request: ChatRequest) -> Sampling:
        size = self.model.vocabulary.size
        biases = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
        beyond = next((token for token in biases if token >= size), None)
        if beyond is not None:
            message = f"`logit_bias` has the token {beyond}: this model's tokens are 0 to {size - 1}"
            raise InvalidRequest(message, param="logit_bias")
        repeat = request.repeat_penalty if request.repeat_penalty is not None else request.repetition_penalty
        default = self.sampling
        return Sampling(
            temperature=_or(request.temperature, default.temperature),
            top_k=max(0, int(_or(request.top_k, default.top_k))),
            top_p=_or(request.top_p, default.top_p),
            min_p=_or(request.min_p, default.min_p),
            seed=request.seed,
            repeat_penalty=_or(repeat, default.repeat_penalty),
            frequency_penalty=request.frequency_penalty or 0.0,
            presence_penalty=request.presence_penalty or 0.0,
            logit_bias=biases,
            banned=self.model.vocabulary.enders if request.ignore_eos else (),
        )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _seeded(sampling: Sampling, index: int) -> Sampling:
    """Return the sampling of the answer `index`, with a seed of its own: seed + index."""
    if sampling.seed is None or sampling.seed == -1 or not index:
        return sampling
    return msgspec.structs.replace(sampling, seed=sampling.seed + index)


def _reason(reason: str) -> FinishReason:
    return "stop" if reason == "stop" else "length"
