"""The operation of the ner function."""

from __future__ import annotations

from functions.ner.api import NerAnswer, NerRequest
from functions.ner.inputs import check
from host.function import Operation

NER: Operation[NerRequest, NerAnswer] = Operation(
    name="ner", request=NerRequest, answer=NerAnswer, check=check, path="/v1/ner"
)
