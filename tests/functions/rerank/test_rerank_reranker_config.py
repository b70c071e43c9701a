"""Rerankers as sentence-transformers saves them: their own chat template for pairs, answers and activation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from rerankers import Opener, ask, decoder
from sentence_transformers import CrossEncoder

from functions.engines.checkpoint.folder import Folder
from functions.rerank import reranker_config
from host.errors import LoadFailed, UnsupportedParameter

pytestmark = pytest.mark.anyio

QUERY = "where is the river"
DOCUMENTS = ["Paris is a letter", "light falls on the river in the morning", "stone", "a river", "winter music " * 9]

NAMED = (
    "{%- set ns = namespace(find='find the river') -%}"
    "{%- for message in messages -%}{%- if message.role == 'system' -%}{%- set ns.find = message.content -%}"
    "{%- elif message.role == 'query' -%}{%- set ns.query = message.content -%}"
    "{%- elif message.role == 'document' -%}{%- set ns.document = message.content -%}{%- endif -%}{%- endfor -%}"
    "<|im_start|>Judge: {{ ns.find }}\nQuery: {{ ns.query }}\nDocument: {{ ns.document }}<|im_end|>\n"
    "{%- if add_generation_prompt -%}<|im_start|>yes or no\n{%- endif -%}"
)
BARE = (
    '{%- for message in messages -%}{%- if message.role == "query" -%}<|im_start|>{{ message.content }}'
    '{%- elif message.role == "document" -%}<|im_start|>document {{ message.content }}<|im_end|>{%- endif -%}'
    "{%- endfor -%}"
)
PARTS = BARE.replace("message.content", "message.content[0]['text']").replace("{%- endfor", "{#- 'type' -#}{%- endfor")


def saved(folder: Path, template: str, *, head: int = 0, prompts: dict[str, str] | None = None, **made: Any) -> Path:
    """Save a tiny decoder as `CrossEncoder` does, which reads it back in `reference`."""
    folder = decoder(folder, head=head)
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<|endoftext|>", model_max_length=500
    )
    words.chat_template = template
    words.save_pretrained(folder)
    activation = made.pop("activation_fn", None)
    chosen = {"default_prompt_name": next(iter(prompts))} if prompts else {}
    model: Any = CrossEncoder(
        str(folder), device="cpu", local_files_only=True, prompts=prompts, activation_fn=activation, **chosen
    )
    for name, word in made.items():
        setattr(model[-1], name, None if word is None else words.convert_tokens_to_ids(word))
    if "add_generation_prompt" in template:
        model[0].processing_kwargs = {"chat_template": {"add_generation_prompt": True}}
    model.save_pretrained(str(folder / "saved"))
    return folder / "saved"


def reference(folder: Path, **given: Any) -> list[float]:
    """What sentence-transformers says."""
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    return model.predict([(QUERY, text) for text in DOCUMENTS], show_progress_bar=False, **given).tolist()


@pytest.mark.parametrize(
    ("template", "made"),
    [
        (NAMED, {}),
        (NAMED, {"prompts": {"search": "stone and light"}}),
        (BARE, {}),
        (PARTS, {}),
        (BARE, {"true_token_id": "Ġlight", "false_token_id": "Ġon"}),
        (BARE, {"true_token_id": "Ġlight", "false_token_id": None}),
        (BARE, {"true_token_id": "Ġlight", "false_token_id": None, "activation_fn": torch.nn.Identity()}),
        (NAMED, {"head": 1}),
        (BARE, {"head": 1, "activation_fn": torch.nn.Identity()}),
    ],
)
async def test_scores_are_those_of_sentence_transformers(
    opener: Opener, tmp_path: Path, template: str, made: dict[str, Any]
) -> None:
    folder = saved(tmp_path, template, **made)
    expected = reference(folder)
    found = await ask(opener(folder), QUERY, DOCUMENTS)
    assert found.scores == pytest.approx(expected, abs=1e-4)
    assert np.std(expected) > 1e-3
    raw = await ask(opener(folder), QUERY, DOCUMENTS, raw_scores=True)
    assert raw.scores == pytest.approx(reference(folder, activation_fn=torch.nn.Identity()), abs=1e-4)


@pytest.mark.parametrize("head", [0, 1])
async def test_the_instruction_is_the_system_message(opener: Opener, tmp_path: Path, head: int) -> None:
    folder = saved(tmp_path, NAMED, head=head)
    own = await ask(opener(folder), QUERY, DOCUMENTS)
    found = await ask(opener(folder), QUERY, DOCUMENTS, instruction="garden paper")
    assert found.scores == pytest.approx(reference(folder, prompt="garden paper"), abs=1e-4)
    assert found.scores != pytest.approx(own.scores, abs=1e-5)


async def test_a_template_without_a_place_takes_no_instruction(opener: Opener, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedParameter, match="instruction"):
        await ask(opener(saved(tmp_path, BARE)), QUERY, DOCUMENTS, instruction="garden paper")


async def test_the_manifest_goes_first(opener: Opener, tmp_path: Path) -> None:
    folder = saved(tmp_path, BARE, true_token_id="Ġlight", false_token_id="Ġon")
    instance = opener(folder, {"prompt": "Find {query} in {document}:", "activation": "identity"})
    found = await ask(instance, QUERY, ["stone"])
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = words(f"Find {QUERY} in stone:", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        last = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits[0, -1]
    yes, no = (words.convert_tokens_to_ids(word) for word in ("Ġlight", "Ġon"))
    assert found.scores[0] == pytest.approx((last[yes] - last[no]).item(), abs=1e-4)


def test_a_chat_template_for_chats_is_no_prompt(tmp_path: Path) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert reranker_config.read(Folder(tmp_path), {}) == reranker_config.RerankerConfig()


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ messages | selectattr('role', 'eq', 'query') }} 'document' {% if %}", "cannot be read"),
        ("{% if false %}'query' 'document'{% endif %}", "does not show their texts: set options.prompt"),
        ("'query' 'document' {{ raise_exception('no') }}", "does not show their texts: set options.prompt"),
    ],
)
def test_templates_that_cannot_be_used(tmp_path: Path, template: str, words: str) -> None:
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(LoadFailed, match=words):
        reranker_config.read(Folder(tmp_path), {})


def test_answers_that_are_no_ids(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "1_LogitScore", "type": "x.LogitScore"}]))
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore/config.json").write_text(json.dumps({"true_token_id": "yes"}))
    with pytest.raises(LoadFailed, match="no token ids"):
        reranker_config.read(Folder(tmp_path), {})
