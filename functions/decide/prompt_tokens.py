"""Tokenises a conversation by the chat template: the prefix that all questions share, and each question's suffix.

Text from clients is never tokenised as special tokens; only the template's own text is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from functions.decide.messages import ChatMessage, alternate_roles
from functions.decide.prompt import QuestionPrompt
from functions.engines.chat_template import ChatTemplate
from functions.engines.llama.model.vocabulary import Vocabulary
from host.errors import InvalidRequest

_MARK = "\ue0f0{}\ue0f1"
"""Stands for a message's content in the rendered template, with private-use characters around its index."""
_MARKED = re.compile("\ue0f0(\\d+)\ue0f1")


class ConversationTokens:
    """A tokenised conversation that goes on with a question."""

    def __init__(self, template: ChatTemplate, vocabulary: Vocabulary, messages: Sequence[ChatMessage]) -> None:
        """Raises `InvalidRequest` where the template accepts the messages in no form."""
        self._vocabulary = vocabulary
        messages = messages if template.knows_system else alternate_roles(messages, knows_system=False)
        try:
            text = _render(template, messages)
        except InvalidRequest:
            messages = alternate_roles(messages, knows_system=template.knows_system)
            text = _render(template, messages)
        pieces = _MARKED.split(text)
        ids = vocabulary.prompt(pieces[0])
        question_mark = len(messages)
        for at in range(1, len(pieces), 2):
            if int(pieces[at]) == question_mark:
                break
            ids += vocabulary.tokenize(messages[int(pieces[at])].text, special=False)
            ids += vocabulary.tokenize(pieces[at + 1], special=True)
        else:
            raise InvalidRequest("the model's chat template does not show the last message", param="model")
        self.prefix = ids
        """The tokens that all questions share."""
        self._separator = "\n\n" if messages[-1].role == "user" else ""
        self._close = vocabulary.tokenize(pieces[at + 1], special=True)

    def suffix(self, prompt: QuestionPrompt) -> list[int]:
        """Return the tokens that a question adds to the prefix."""
        user = self._vocabulary.tokenize(self._separator + prompt.user, special=False) if prompt.user else []
        model = self._vocabulary.tokenize(prompt.model, special=False) if prompt.model else []
        return [*user, *self._close, *model]


def _render(template: ChatTemplate, messages: Sequence[ChatMessage]) -> str:
    """Return the template's text with a mark for each content, and mark `len(messages)` where the question goes.

    Raises `InvalidRequest` where the template rejects the messages.
    """
    marked = [{"role": message.role, "content": _MARK.format(at)} for at, message in enumerate(messages)]
    question_mark = _MARK.format(len(messages))
    if messages[-1].role == "user":
        marked[-1] = {**marked[-1], "content": marked[-1]["content"] + question_mark}
    else:
        marked.append({"role": "user", "content": question_mark})
    try:
        return template.render(marked, {"enable_thinking": False})
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param="input") from None
