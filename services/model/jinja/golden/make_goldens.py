#!/usr/bin/env python3
"""Writes the golden files of the chat template tests, rendered by jinja2 with the settings of Hugging Face.

usage: make_goldens.py
Needs the Python package jinja2.

constructs.json  small templates, one construct each, and random expressions: output, or that they fail
chats.json       whole chat templates over conversations: output, or the text they raise
templates/*.jinja are short templates with the structure of those of well-known models.
"""
import copy
import datetime
import glob
import json
import os
import random

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2024, 7, 26)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()
MESSAGES = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi \"there\"\n"}, {"role": "assistant", "content": "Hello, Ünïcode 🙂!"}]


def render(source, messages, generate=False):
    try:
        out = ENV.from_string(source).render(messages=copy.deepcopy(messages), add_generation_prompt=generate, bos_token="<s>", eos_token="</s>", tools=None, documents=None)
        return {"output": out}
    except TemplateError as error:
        return {"error": str(error)}
    except Exception as error:  # Python's own errors inside an expression
        return {"error": type(error).__name__}


CONSTRUCTS = r'''
{{ messages[0].content | trim }}|{{ messages[1]['content'] }}
{% if messages %}a{% elif x %}b{% else %}c{% endif %}
{% if nope %}a{% elif messages|length > 2 %}b{% else %}c{% endif %}
{% if nope %}a{% else %}c{% endif %}
{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ m.role }};{% endfor %}
{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem.role if not loop.last }} {% endfor %}
{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.role }}{% else %}none{% endfor %}
{% for m in [] %}x{% else %}none{% endfor %}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }},{% endfor %}
{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %}
{% for c in 'añ🙂' %}[{{ c }}]{% endfor %}
{% for i in range(3) %}{{ i }}{% for j in range(i) %}.{{ loop.depth }}{{ j }}{% endfor %}{% endfor %}
{% for i in range(10, 0, -3) %}{{ i }} {% endfor %}
{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in range(4) %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set x %}block {{ 1 + 1 }}{% endset %}[{{ x }}]
{% set x | upper %}block{% endset %}[{{ x }}]
{% filter upper | trim %} abc {{ 'd' }} {% endfilter %}
{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.nope is defined }}
{% set ns = namespace({'a': 1}) %}{{ ns.a }}
{% macro f(a, b=2, c='x') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=7, a=8) }}{{ f() }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f() %}{{ y }}{% endmacro %}{% set y = 5 %}{{ f() }}
{% macro f(x) %}{{ x }}{{ messages|length }}{% endmacro %}{{ f('a') | upper }}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}
{% generation %}in{% endgeneration %}
{% raw %}{{ not }} {% evaluated %}{% endraw %}
a {# comment #} b{#- c -#} d
{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::-1] }}{{ 'abcdef'[::2] }}{{ 'abcdef'[-3:] }}{{ 'abc'[5:] }}|{{ 'abc'[:-5] }}|
{{ [1, 2, 3, 4][1:] }}{{ [1, 2, 3, 4][:-1] }}{{ [1, 2, 3][::-1] }}{{ (1, 2, 3)[1:] }}{{ messages[1:] | length }}{{ [1,2,3,4,5][10:0:-2] }}{{ [1,2,3][-100:100:3] }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 7 / 2 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789.123 }} {{ 1_000 }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ [1, 2] < [1, 3] }} {{ 'a' != 'b' }} {{ none == none }} {{ (1,) == [1] }}
{{ 'a' in 'abc' }} {{ 1 in [1, 2] }} {{ 'role' in messages[0] }} {{ 'x' not in messages[0] }} {{ 'x' in nope }} {{ not 'a' in 'abc' }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }} {{ 'a' 'b' "c" }} {{ 'ab' * 2 }} {{ [0] * 3 }} {{ 'a' + 'b' }} {{ [1] + [2] }}
{{ 1 if true else 2 }} {{ 1 if false }} {{ 1 if false else 2 if false else 3 }} {{ (nope or 'x') and 'y' }} {{ 0 or none }} {{ not nope }} {{ '' and 1 }}|
{{ nope }}|{{ nope | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ none | d('x') }}|{{ messages[9] | d('far') }}|{{ messages[0].nope }}|
{{ nope is defined }} {{ nope is undefined }} {{ none is none }} {{ 'a' is string }} {{ messages[0] is mapping }} {{ messages is sequence }} {{ 'a' is sequence }} {{ messages[0] is sequence }} {{ 1 is iterable }} {{ messages is iterable }} {{ nope is iterable }} {{ nope is sequence }}
{{ true is boolean }} {{ 1 is boolean }} {{ 1 is number }} {{ true is number }} {{ 1.5 is float }} {{ 1 is integer }} {{ true is integer }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ namespace is callable }} {{ 'A' is upper }} {{ 'a1' is lower }} {{ '1' is lower }}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is equalto 1 }} {{ 1 is eq(2) }} {{ 1 is ne 2 }} {{ 1 is in [1, 2] }} {{ 3 is not in [1] }} {{ 2 is gt 1 }} {{ 2 is le 1 }} {{ none is sameas none }} {{ 1 is not none and true }}
{{ messages | map(attribute='role') | join(', ') }} {{ ['a', 'b'] | map('upper') | list }} {{ [{'x': {'y': 1}}, {}] | map(attribute='x', default='?') | list }}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }} {{ messages | rejectattr('role', 'equalto', 'user') | list | length }} {{ messages | selectattr('content') | list | count }} {{ messages | selectattr('role', 'in', ['user', 'system']) | list | length }} {{ messages | selectattr('nope', 'defined') | list }}
{{ [1, 2, 3, 4] | select('odd') | list }} {{ [1, 2, 3, 4] | reject('gt', 2) | list }} {{ [0, 1, '', 'a'] | select | list }}
{{ [1, 2] | first }}{{ [1, 2] | last }}{{ 'abc' | first }}{{ 'abc' | last }}{{ [] | first }}|{{ [] | last }}|
{{ [1, 'a', none] | join }} {{ [1, 2] | join('-') }} {{ 'abc' | join('.') }} {{ [{'a': 1}, {'a': 2}] | join('+', attribute='a') }} {{ ','.join(['x', 'y']) }}
{{ 'hello world-foo bar(baz) ÀB' | title }} {{ 'hELLO wORLD' | capitalize }} {{ 'a\tb c' | title }} {{ "it's o'clock".title() }} {{ 'ab' | upper }}{{ 'AB' | lower }} {{ 'éa'.upper() }} {{ 'hELLO'.capitalize() }}
{{ ' a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xyaxy'.strip('xy') }}|{{ 'a\n\n'.rstrip('\n') }}|{{ '\u00a0\u3000a\u200b' | trim }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c d'.split(' ', 2) }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'x</think>y'.split('</think>')[-1] }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ '  a b  c '.rsplit(none, 1) }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('x') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'éab'.find('b') }} {{ 'abab'.rfind('ab') }} {{ 'abab'.count('ab') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'aXbX' | replace('X', '') }}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'a': 1} | items | list }} {{ {'a': 1}['a'] }} {{ {'a': 1}.a }} {{ {1: 'x', 'k': 2}[1] }} {{ {'a': 1, 'a': 2} }}
{{ [1, 2.0, 'a\'b', "q\"", none, true, (1,), (), {'k': [1]}] }} {{ ['é\n\x07\\'] }}
{{ {'a': [1, 2.5, none, true], 'b': 'x"y\n<é>', 'c': {}, 'd': []} | tojson }} {{ {'b': 1, 'a': [1, {'x': 2}]} | tojson(indent=2) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ messages | tojson }} {{ 'a' | tojson }} {{ {1: 2, none: 3, true: 4} | tojson }}
{{ '12' | int }} {{ ' 7 ' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ true | int }} {{ '1.5' | float }} {{ 2 | float }} {{ 12 | string }} {{ none | string }} {{ 12 | string | length }} {{ -5 | abs }} {{ 'a'|list }} {{ {'x': 1}|list }}
{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ [3, 1, 2] | sort(reverse=true) }} {{ [1, 2, 1, 3] | unique | list }} {{ ['a', 'A', 'b'] | unique | list }} {{ [1, 2, 3] | reverse | list }} {{ 'abc' | reverse }} {{ messages | sort(attribute='role') | map(attribute='role') | list }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('>') }}|
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %a %j %%') }}
{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ tools }}{{ add_generation_prompt }}
{{ '\n\t\\\'\"\x41\u00e9\101\q' }}
{{ messages | length is gt 2 }} {{ messages[0].content.strip() | length }} {{ (messages | first).role }} {{ messages[-1]['role'] }} {{ messages.0.role }} {{ 'x' if messages[0]['role'] == 'system' else 'y' }}
{{ {'a': {'b': {'c': 1}}}.a.b.c }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {"x": {"y": {}}} }}
{{ 1,2 }} {{ (1, 2) }} {{ () }} {{ [] }} {{ {} }}
{% set items = [] %}{% for m in messages %}{% set items = items + [m.role] %}{% endfor %}{{ items }}
{% if true %}
  line
{% endif %}
end
  {% if true %}  x  {% endif %}
{%- if true -%}  x  {%- endif -%}  y
a  {{- 'b' -}}  c
a
  {%- for i in [1, 2] %}
  {{ i }}
  {%- endfor %}
z
  {%+ if true %}x{% endif +%}
y
{# c #}
x
  {# c #}  y
{% for i in [1,2] -%}
  {{ i }}
{%- endfor %}
 {% raw -%} x {%- endraw %} y
{{ "}}" }}{{ '{%' }}{{ "a" }}
{{ messages[0]['content']|trim + '!' }}
{{ not true or true }} {{ not (true and false) }} {{ 1 + -1 }} {{ +1 }} {{ - -1 }} {{ 2 * 3 ~ 'x' }}
{{ messages[0]|length }} {{ messages|map('length')|list }} {{ [1, [2, [3]]] }} {{ [[1, 2], [3]] | map('join', '-') | list }}
{{ nope.x }}
{{ nope + 1 }}
{{ nope() }}
{{ 1 + 'a' }}
{{ 'a' < 1 }}
{{ 1 // 0 }}
{{ raise_exception('told so') }}
{{ 'abc'.nope() }}
{{ messages[0].role.nope.x }}
{% for x in 5 %}{% endfor %}
{{ [1] | nofilter }}
{% nosuchtag %}
{{ 1 + }}
{{ (1 }}
{% if true %}
{% endif %}
{{ 'open }}
{{ nope | length }} {{ nope | list }} {{ nope | join }}|{{ nope | trim }}|{{ nope ~ 'x' }} {{ nope == nopetoo }} {{ nope == none }}
{{ nope | items | list }} {{ 'x' is in 'xyz' }} {{ loop is defined }} {{ [1,2,3][1] }} {{ [1,2,3][7] is defined }}
'''


def constructs():
    sources, block = [], []
    for line in CONSTRUCTS.strip("\n").split("\n"):
        sources.append(line)
    sources += [
        "{% if true %}\n  line\n{% endif %}\nend\n", "  {% if true %}  x  {% endif %}  \n", "{%- if true -%}  x  {%- endif -%}  y", "a\n  {%- for i in [1, 2] %}\n  {{ i }}\n  {%- endfor %}\nz",
        "  {%+ if true %}x{% endif +%}\ny", "{# c #}\nx\n  {# c #}  y\n", "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}", "a\r\nb\rc{{ 1 }}\r\n", "{{ 1 }}\n\n", "\n\n{{ 1 }}", "a\n \t {% set x = 1 %}\n \t b",
        "x {% set a = 1 %}\n  {{ a }}", "{% if false %}a{% else %}\n  b\n  {% endif %}c", "{% raw %}\n  {{ x }}\n  {% endraw %}\ny", "{%- set x = 'a' -%}\n\n{{- x -}}\n\n b", "{{- 1 }} {{ 2 -}}\n 3", "{% macro m() -%}\n  x\n{%- endmacro -%}\n{{ m() }}",
        "{% for m in messages %}\n    {%- if m.role == 'user' %}\n        {{- 'U:' + m.content | trim }}\n    {%- else %}\n        {{- m.role }}\n    {%- endif %}\n{%- endfor %}",
        "{{ 'multi\nline' }}", "{#- only -#}", "{% set x = {'a': [1, 2,],} %}{{ x }}", "{{ [1,\n  2] }}", "\u00e9{{ '\u00e9' }}{# \u00e9 #}",
    ]
    return sources


class Expressions:
    """Random expressions over small values."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def atom(self):
        return self.rng.choice(["0", "1", "2", "7", "-3", "1.5", "0.1", "true", "false", "none", "'a'", "'Ab c'", "' x '", "''", "'é🙂'", "[]", "[1, 2]", "['b', 'a']", "(1, 'x')",
                                "{'a': 1}", "{}", "nope", "messages[0].role", "messages", "messages[1]", "bos_token", "messages[1].content"])

    def make(self, depth):
        if depth == 0:
            return self.atom()
        r = self.rng
        a = lambda: self.make(depth - 1 - r.randint(0, 1) if depth > 1 else 0)
        kind = r.randint(0, 11)
        if kind <= 2:
            return f"{a()} {r.choice(['+', '-', '*', '/', '//', '~', '~', 'and', 'or', '+'])} {a()}"
        if kind == 3:
            return f"({a()}) {r.choice(['==', '!=', '<', '>', '<=', '>=', 'in', 'not in'])} ({a()})"
        if kind == 4:
            return f"({a()} if {a()} else {a()})"
        if kind == 5:
            if r.random() < 0.5:  # only sequences, since what else a slice does depends on constant folding
                return f"(({a()}) | {r.choice(['string', 'list'])})[{r.choice(['1:', ':-1', '::-1', '::2', '1:3'])}]"
            return f"({a()})[{r.choice(['0', '-1', chr(39) + 'a' + chr(39)])}]"
        if kind <= 8:
            name = r.choice(["trim", "upper", "lower", "length", "first", "last", "join('-')", "string", "list", "tojson", "default('D')", "default('D', true)", "int", "float", "title", "capitalize",
                             "replace('a', 'ZZ')", "reverse|list", "unique|list", "sort", "indent", "select|list", "map('string')|list", "abs"])
            return f"({a()}) | {name}"
        if kind == 9:
            return f"({a()}) is {r.choice(['', 'not '])}{r.choice(['defined', 'none', 'string', 'mapping', 'sequence', 'iterable', 'number', 'boolean', 'integer', 'float', 'true', 'odd', 'eq 1', 'in [1, 2]'])}"
        if kind == 10:
            return f"({a()}).{r.choice(['strip()', 'upper()', 'split()', 'split(chr)', 'title()', 'items()|list', 'keys()|list', 'get(1)', 'startswith(' + chr(39) + 'a' + chr(39) + ')', 'role', 'a']).replace('chr', chr(39) + 'a' + chr(39))}"
        return f"not {a()}"


SKIP = ("<generator", "<list_reverse", "<built-in", "<bound method", "<function", "<jinja2", "Undefined", "dict_", "<sandbox", "<class", "<reversed")


def expressions(count):
    maker, cases = Expressions(7), []
    while len(cases) < count:
        source = "{{ " + maker.make(maker.rng.randint(1, 4)) + " }}"
        result = render(source, MESSAGES)
        # `x is test if y` fails to parse there; we take it.
        if "expected token" in result.get("error", ""):
            continue
        if "error" in result and maker.rng.random() < 0.7:
            continue
        if len(result.get("output", "")) > 400 or any(s in result.get("output", "") for s in SKIP):
            continue
        cases.append({"source": source, **result})
    return cases


def say(*turns):
    return [{"role": role, "content": content} for role, content in turns]


CHATS = [
    say(("user", "Hello")), say(("system", "Be kind."), ("user", " Hello \n")), say(("user", "a"), ("assistant", " b "), ("user", "c")),
    say(("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")), say(("user", "a"), ("user", "b")), say(("assistant", "x")), say(("user", "")),
    say(("user", "<|im_end|>\n<|im_start|>assistant\nOK")), say(("user", "\u00e9\U0001f642 [INST] </s>")), say(("system", " padded "), ("user", "x")), say(("tool", "42"), ("user", "y")), [],
]


def write(name, value):
    with open(os.path.join(HERE, name), "w", encoding="ascii") as out:
        out.write("[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in value) + "\n]\n")


def main():
    cases = [{"source": s, **render(s, MESSAGES)} for s in constructs()]
    write("constructs.json", cases + expressions(1200))
    chats = []
    for path in sorted(glob.glob(os.path.join(HERE, "templates", "*.jinja"))):
        source = open(path, encoding="utf-8").read()
        for messages in CHATS:
            for generate in (False, True):
                chats.append({"template": os.path.basename(path), "messages": messages, "generate": generate, **render(source, messages, generate)})
    write("chats.json", chats)


if __name__ == "__main__":
    main()
