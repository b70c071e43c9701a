"""Turns and questions as token ids: the prefix that all questions share, and what each adds to it.

What clients wrote is never read as one of the model's special tokens: only the template's own text is. It knows chat
templates and vocabularies, and nothing of probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from functions.decide.prompt import Asked
from functions.decide.turns import Turn, tame
from functions.engines.chat_template import ChatTemplate
from functions.engines.llama.model.vocabulary import Vocabulary
from host.errors import InvalidRequest

_MARK = "\ue0f0{}\ue0f1"
_MARKED = re.compile("\ue0f0(\\d+)\ue0f1")


class Script:
    """One input, rendered."""

    def __init__(self, template: ChatTemplate, words: Vocabulary, said: Sequence[Turn]) -> None:
        """Raise `InvalidRequest` where the template takes these turns in no way."""
        self._words = words
        said = said if template.knows_system else tame(said, knows_system=False)
        try:
            text = _rendered(template, said)
        except InvalidRequest:
            said = tame(said, knows_system=template.knows_system)
            text = _rendered(template, said)
        pieces = _MARKED.split(text)
        ids = words.prompt(pieces[0])
        contents = [turn.text for turn in said]
        end = _lead(said)
        for at in range(1, len(pieces), 2):
            if int(pieces[at]) == end:
                break
            ids += words.tokenize(contents[int(pieces[at])], special=False)
            ids += words.tokenize(pieces[at + 1], special=True)
        else:
            raise InvalidRequest("the model's chat template does not show the last message", param="model")
        self.prefix = ids
        """What all questions share."""
        self._gap = "\n\n" if said[-1].role == "user" else ""
        self._close = words.tokenize(pieces[at + 1], special=True)

    def suffix(self, asked: Asked) -> list[int]:
        """Return what a question adds."""
        user = self._words.tokenize(self._gap + asked.user, special=False) if asked.user else []
        model = self._words.tokenize(asked.model, special=False) if asked.model else []
        return [*user, *self._close, *model]


def _lead(said: Sequence[Turn]) -> int:
    """Return the number of the mark where questions go."""
    return len(said)


def _rendered(template: ChatTemplate, said: Sequence[Turn]) -> str:
    """Return the template's text with marks for contents, and one more where the last user turn goes on.

    Raises `InvalidRequest` where the template refuses these turns.
    """
    messages = [{"role": turn.role, "content": _MARK.format(at)} for at, turn in enumerate(said)]
    lead = _MARK.format(_lead(said))
    if said[-1].role == "user":
        messages[-1] = {**messages[-1], "content": messages[-1]["content"] + lead}
    else:
        messages.append({"role": "user", "content": lead})
    try:
        return template.render(messages, {"enable_thinking": False})
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param="input") from None
