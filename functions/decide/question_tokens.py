"""Tokenises requests: one prefix that is computed once; for each question a suffix and its answers' spellings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from functions.decide.answer_spellings import AnswerSpellings, Ids
from functions.decide.api import DecisionRequest, Question
from functions.decide.messages import ChatMessage, to_messages
from functions.decide.options import DecideOptions
from functions.decide.prompt import QuestionPrompt, fill_prompt, question_prompt
from functions.decide.prompt_tokens import ConversationTokens
from functions.decide.texts import answer_values, question_text, value_texts
from functions.decide.tokenizer_pool import CheckCancelled
from functions.engines.batching import length_guard
from functions.engines.chat_template import ChatTemplate
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.scoring.branch import Branch
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.errors import ContextLengthExceeded

T = TypeVar("T")

SYSTEM = "You answer questions about a text."
"""The system message where neither the input nor the manifest has one."""


class TokenizedQuestion(msgspec.Struct, frozen=True):
    """A question ready to be scored."""

    question: Question
    prompt: QuestionPrompt
    branch: Branch
    spellings: AnswerSpellings


class QuestionTokenizer:
    """Tokenises requests for one model."""

    def __init__(
        self,
        template: ChatTemplate,
        vocabulary: Vocabulary,
        options: DecideOptions,
        *,
        longest: int,
        system: str | None,
    ) -> None:
        """`longest` is the model's context in tokens, `system` the manifest's system message."""
        self._template = template
        self._vocabulary = vocabulary
        self._options = options
        self._longest = longest
        self._system = system or SYSTEM

    def tokenize(self, request: DecisionRequest, check: CheckCancelled) -> tuple[list[int], list[TokenizedQuestion]]:
        """Return the prefix and the questions; tokens that all questions begin with belong to the prefix.

        Takes seconds for many long choices; `check` is called before each question and each choice. Raises
        `InvalidRequest` where the template rejects the input, `ContextLengthExceeded`, and `InputTooLong` for texts
        that are too long to be tokenised.
        """
        messages = to_messages(request, self._system)
        self._check_lengths(request, messages)
        conversation = ConversationTokens(self._template, self._vocabulary, messages)
        prompts = [question_prompt(question, self._options) for question in request.questions]
        suffixes = [conversation.suffix(prompt) for prompt in _checking(prompts, check)]
        count = self._shared(conversation, {question.type for question in request.questions}, suffixes)
        prefix = [*conversation.prefix, *suffixes[0][:count]]
        questions: list[TokenizedQuestion] = []
        for question, prompt, suffix in _checking(zip(request.questions, prompts, suffixes, strict=True), check):
            spellings = self._answer_spellings(question, check)
            branch = Branch(suffix[count:], spellings.token_ids)
            questions.append(TokenizedQuestion(question, prompt, branch, spellings))
            self._check_context(prefix, questions[-1], len(questions) - 1)
        return prefix, questions

    def tokenize_without_input(
        self, questions: Sequence[TokenizedQuestion], check: CheckCancelled
    ) -> tuple[list[int], list[Branch]]:
        """Return the prefix and the branches of the same questions about an empty input."""
        messages = [ChatMessage("system", self._system), ChatMessage("user", "")]
        conversation = ConversationTokens(self._template, self._vocabulary, messages)
        branches = [
            Branch(conversation.suffix(question.prompt), question.spellings.token_ids)
            for question in _checking(questions, check)
        ]
        return conversation.prefix, branches

    def _shared(self, conversation: ConversationTokens, types: set[str], suffixes: Sequence[Sequence[int]]) -> int:
        """Return how many tokens all questions of these types begin with, also those of other requests.

        A request with one question cannot show what it shares with others, so two made-up questions of each type are
        compared as well.
        """
        samples = [
            conversation.suffix(fill_prompt(getattr(self._options, f"{type_}_prompt"), *texts))
            for type_ in types
            for texts in (("Is", "a"), ("0", "1"))
        ]
        return min(min(common_prefix(suffixes[0], other), len(other) - 1) for other in [*samples, *suffixes])

    def _answer_spellings(self, question: Question, check: CheckCancelled) -> AnswerSpellings:
        if question.type == "predicate":
            return AnswerSpellings([self._spellings(self._options.yes_words), self._spellings(self._options.no_words)])
        texts = value_texts(answer_values(question))
        return AnswerSpellings([self._spellings([text]) for text in _checking(texts, check)])

    def _spellings(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of each text as it is after a word (with a space) and at the beginning of a line."""
        return [tuple(self._vocabulary.tokenize(space + text, special=False)) for text in texts for space in (" ", "")]

    def _check_lengths(self, request: DecisionRequest, messages: Sequence[ChatMessage]) -> None:
        length_guard.check("\n".join(message.text for message in messages), self._longest, "input")
        for at, question in enumerate(request.questions):
            length_guard.check(question_text(question), self._longest, f"questions[{at}]")

    def _check_context(self, prefix: Sequence[int], question: TokenizedQuestion, at: int) -> None:
        own = len(question.branch.suffix) + max(map(len, question.spellings.token_ids))
        if len(prefix) + own > self._longest:
            raise ContextLengthExceeded(
                f"the input has {len(prefix)} tokens, and `questions[{at}]` with its longest answer {own} more: "
                f"this model's context holds {self._longest}",
                param="input" if len(prefix) >= own else f"questions[{at}]",
                extra={"n_prompt_tokens": len(prefix) + own, "n_ctx": self._longest},
            )


def _checking(items: Iterable[T], check: CheckCancelled) -> Iterator[T]:
    """Yield the items, checking before each that the request was not cancelled."""
    for item in items:
        check()
        yield item
