"""Chat templates run as Transformers runs them, in a sandbox, and fail with words for the client."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from functions.engines.chat_template import ChatTemplate, TemplateError
from host.errors import InvalidRequest

CHATML = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHAT: list[dict[str, Any]] = [{"role": "system", "content": "Be <b>kind</b>."}, {"role": "user", "content": "Grüße 🦊"}]

SOURCES = {
    "chatml": CHATML,
    "blocks": "{% for m in messages %}\n  {% if m.role == 'user' %}\nU: {{ m.content }}\n  {% endif %}\n{% endfor %}\n",
    "controls": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m }}{% break %}{% endfor %}",
    "json": "{{ messages | tojson }} {{ messages | tojson(indent=2) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=True) }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "absent": "{{ tools is none }} {{ documents is none }} {{ nothing is defined }} {{ eos_token }}",
    "today": "{{ strftime_now('%Y-%m-%d') }}",
    "macro": "{% macro show(m) %}[{{ m.role }}]{% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}",
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("opens", [True, False])
def test_templates_render_as_in_transformers(name: str, opens: bool) -> None:
    ours = ChatTemplate(SOURCES[name], bos="<s>", eos="</s>").render(CHAT, open_answer=opens)
    theirs, _ = render_jinja_template(
        [CHAT], chat_template=SOURCES[name], add_generation_prompt=opens, bos_token="<s>", eos_token="</s>"
    )
    assert ours == theirs[0]


def test_strftime_now() -> None:
    assert ChatTemplate(SOURCES["today"]).render(CHAT) == dt.datetime.now().astimezone().strftime("%Y-%m-%d")


def test_the_templates_own_message_reaches_the_client() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidRequest, match="refuses these messages: roles must alternate") as raised:
        template.render(CHAT)
    assert raised.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(InvalidRequest):
        ChatTemplate(source).render(CHAT)


@pytest.mark.parametrize("source", ["{{ 1 + 'a' }}", "{{ messages[9].content + 'x' }}", "{{ 1 // 0 }}", "{{ x() }}"])
def test_a_failing_template_is_a_client_error(source: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        ChatTemplate(source).render(CHAT)
    assert raised.value.param == "messages"


def test_invalid_templates() -> None:
    with pytest.raises(TemplateError):
        ChatTemplate("{% for %}")


@pytest.mark.parametrize(
    ("source", "system", "developer"),
    [
        (CHATML, True, False),
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", False, False),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}", False, False),
        (CHATML + "{# role developer #}", True, True),
    ],
)
def test_roles_that_a_template_supports(source: str, system: bool, developer: bool) -> None:
    template = ChatTemplate(source)
    assert (template.knows_system, template.knows_developer) == (system, developer)


def test_extra_variables() -> None:
    template = ChatTemplate("{{ enable_thinking }} {{ bos_token }}", bos="<s>")
    assert template.render(CHAT, {"enable_thinking": False, "bos_token": "forged", "messages": []}) == "False <s>"


def test_an_open_last_message() -> None:
    chat = [*CHAT, {"role": "assistant", "content": "Well, "}]
    assert ChatTemplate(CHATML).render_open(chat).endswith("<|im_start|>assistant\nWell, ")
    with pytest.raises(InvalidRequest):
        ChatTemplate("{{ messages[0].content }}").render_open(chat)
