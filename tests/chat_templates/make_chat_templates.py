#!/usr/bin/env python3
"""Renders the chat templates of this folder with transformers (real Jinja) and writes what came out.

  *.jinja                 templates in the style of the families they are named after, written for this test: the same
                          constructions (white space control, tools, dict printing, namespaces, macros, slices, ...),
                          other words
  renderings.json         for each template and conversation: the text, or the message of raise_exception, or
                          {"fails": true} where rendering fails otherwise
  expressions.json        one-line templates over {"x": ...}, for Python's meaning of filters, methods and operators

Needs: pip install transformers jinja2 (made with 5.24.0 and 3.1.6). Run it in this folder; it is deterministic.
"""
import json
import pathlib

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).parent
BOS, EOS = "<s>", "</s>"

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "What the weather is like <now> & \"here\"",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": None},
        "days": {"type": "integer", "minimum": 0, "exclusive": True}},
        "required": ["city"]}}}
LIST_TOOL = {"type": "function", "function": {
    "name": "sum_all", "description": "Sums numbers",
    "parameters": {"type": "object", "properties": {
        "values": {"type": "array", "items": {"type": "number"}, "description": "température ≤ 1.5e-7"}},
        "required": ["values"]}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, number=0):
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


TALK = [user("Hello there!"), assistant("Hi. How may I help?"), user("What is 2 + 2?")]
CONVERSATIONS = {
    "one_turn": {"messages": [user("What is the capital of France?")]},
    "no_prompt": {"messages": TALK[:2], "add_generation_prompt": False},
    "three_turns": {"messages": TALK},
    "system": {"messages": [system("You are terse.")] + TALK},
    "white_space": {"messages": [system("  \n spaced system \n"), user("\n\n  indented\n\ttabbed  \n"),
                                 assistant("  answer with ends \n\n"), user(" x ")]},
    "unicode": {"messages": [system("Sois poli : « toujours »."), user("今日は 👋🏽 e\u0301 \u200b ½ \u00a0!"),
                             assistant("Привет \U0001f600"), user("<b>&amp; 'quotes' \"double\" \\ back</b>")]},
    "empty": {"messages": [system(""), user(""), assistant(""), user("")]},
    "tools": {"messages": [user("Weather in Paris?")], "tools": [WEATHER, LIST_TOOL]},
    "tools_system": {"messages": [system("Use tools."), user("Weather in Paris?")], "tools": [WEATHER]},
    "tool_calls": {"tools": [WEATHER], "messages": [
        user("Weather in Zürich?"),
        assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "ratio": 1.0, "ok": True,
                                                       "none": None, "list": [1, "a"]}, 1)]),
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temp\": 21.5}"},
        assistant("It is 21.5 degrees."), user("And tomorrow?")]},
    "two_calls": {"tools": [WEATHER, LIST_TOOL], "messages": [
        system("Be quick."), user("Two things."),
        assistant(None, tool_calls=[call("get_weather", {"city": "Oslo"}, 1), call("sum_all", {"values": [1, 2.5]}, 2)]),
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "cold"},
        {"role": "tool", "name": "sum_all", "tool_call_id": "call00002", "content": "3.5"}]},
    "thinking": {"messages": [user("Why?"), assistant("<think>\nhm, because\n</think>\n\nBecause."), user("Sure?"),
                              assistant("Yes.", reasoning_content="I am sure."), user("Really?")]},
    "thinking_off": {"messages": TALK, "kwargs": {"enable_thinking": False}},
    "documents": {"messages": TALK, "kwargs": {"documents": [
        {"doc_id": 1, "title": "First", "text": "One fact.\n"}, {"doc_id": 2, "title": "", "text": "Another 'fact'"}]}},
    "two_users": {"messages": [user("one"), user("two")]},
    "assistant_first": {"messages": [assistant("I begin."), user("and I follow")]},
    "unknown_role": {"messages": [{"role": "critic", "content": "no"}, user("yes")]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "part one"},
                                                        {"type": "text", "text": "part two"}]}]},
    "no_content": {"messages": [{"role": "user"}]},
    "long": {"messages": [m for i in range(40) for m in (user(f"question {i}"), assistant(f"answer {i}"))] + [user("?")]},
    "none": {"messages": []},
}

TREE = {"b": 1, "a": [1, 2.0, "x", None, True, {"k": "it's"}], "é": "tab\t\"q\" 'both' \\ \x7f\u200b</script>&", "f": 1e-7,
        "big": 12345678901234567890, "e16": 1e16, "items": {"n": -0.5}, "neg": -7, "s": "  Hello World, hello  ",
        "lines": "a\n  b\n\nc\n", "none": None, "t": True, "empty": [], "people": [{"n": "b", "v": 2}, {"n": "a", "v": 1}]}
EXPRESSIONS = r"""{{ x }}|{{ x.a }}|{{ x['é'] }}|{{ x.none }}|{{ x.t }}|{{ x.missing }}|{{ x.f }}|{{ x.e16 }}|{{ x.big }}
{{ x | tojson }}|{{ x | tojson(indent=2) }}|{{ x.a | tojson(ensure_ascii=True) }}|{{ x['é'] | tojson(ensure_ascii=True) }}
{{ x | tojson(separators=(',', ':')) }}|{{ x | tojson(sort_keys=True) }}|{{ x.empty | tojson(indent=4) }}|{{ {} | tojson(indent=4) }}
{{ x.s.strip() }}|{{ x.s.lstrip() }}|{{ x.s.rstrip() }}|{{ x.s.strip(' Hd') }}|{{ x.s.upper() }}|{{ x.s.lower() }}|{{ x.s.title() }}|{{ x.s | title }}
{{ x.s.split() }}|{{ x.s.split(',') }}|{{ x.s.split(' ', 1) }}|{{ x.s.rsplit(' ', 1) }}|{{ x.s.split(None, 1) }}|{{ x.s.rsplit(None, 1) }}|{{ x.lines.split('\n') }}
{{ x.lines.splitlines() }}|{{ x.lines.splitlines(True) }}|{{ x.s.replace('l', 'L') }}|{{ x.s.replace('l', 'L', 1) }}|{{ x.s.find('World') }}|{{ 'éa'.find('a') }}|{{ x.s.count('l') }}
{{ x.s.startswith('  H') }}|{{ x.s.endswith(('x', ' ')) }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ 'a-b-c'.partition('-') | list }}|{{ 'a-b'.join(['1','2']) }}
{{ 'ab'.center(7, '*') }}|{{ 'abc'.center(6) }}|{{ 'abc'.ljust(5) }}|{{ 'abc'.rjust(5) }}|{{ '-7'.zfill(4) }}|{{ 'aBc'.swapcase() }}|{{ 'hello wORLD'.capitalize() }}|{{ 'x'.isdigit() }}|{{ '12'.isdigit() }}|{{ ''.isalpha() }}
{{ x.keys() | list }}|{{ x.get('b') }}|{{ x.get('zz') }}|{{ x.get('zz', 'dflt') }}|{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}|{% for k, v in x | dictsort %}{{ k }};{% endfor %}|{{ x.people[0].values() | list }}
{{ x.a | length }}|{{ x.s | length }}|{{ x | length }}|{{ x.missing | length }}|{{ x.a[1:] }}|{{ x.a[::-1] }}|{{ x.a[-1] }}|{{ x.a[-2:] }}|{{ x.s[2:7] }}|{{ x.s[::-1] }}|{{ x.a[:-1] | length }}
{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7 / 2 }}|{{ 2 ** 10 }}|{{ 6 / 2 }}|{{ 1.5 + 1 }}|{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }}|{{ 'ab' * 3 }}|{{ [1] * 2 + [3] }}|{{ '%s is %d' % ('x', 5) }}|{{ '%s!' % 'y' }}|{{ -7.5 // 2 }}
{{ x.missing is defined }}|{{ x.none is none }}|{{ x.s is string }}|{{ x is mapping }}|{{ x.a is iterable }}|{{ x.s is iterable }}|{{ x.s is sequence }}|{{ x is sequence }}|{{ x.b is number }}|{{ x.t is number }}|{{ x.t is boolean }}|{{ x.b is integer }}|{{ x.f is float }}|{{ x.missing is none }}|{{ x.t is true }}|{{ x.b is odd }}|{{ x.missing is iterable }}|{{ 1 is in [1, 2] }}
{{ 'a' in x }}|{{ 'World' in x.s }}|{{ 2 in x.a }}|{{ 'q' not in x }}|{{ 'x' in x.missing }}|{{ 1 == 1.0 }}|{{ x.a == x.a }}|{{ not x.empty }}|{{ x.empty or 'else' }}|{{ x.b and x.s }}|{{ 'y' if x.t else 'n' }}|{{ 'y' if x.none }}
{{ x.s | trim }}|{{ x.none | string }}|{{ x.a | join(', ') }}|{{ x.people | map(attribute='n') | join('-') }}|{{ x.people | selectattr('v', 'equalto', 2) | list }}|{{ x.people | rejectattr('v', 'gt', 1) | map(attribute='n') | list }}|{{ x.people | sort(attribute='n') | map(attribute='v') | list }}|{{ x.people | sum(attribute='v') }}|{{ x.people | groupby('n') | length }}
{{ x.lines | indent(2) }}|{{ x.lines | indent(2, true) }}|{{ x.lines | indent(width=3, blank=true) }}|{{ x.lines | indent('> ') }}|{{ x.missing | default('d') }}|{{ x.none | default('d') }}|{{ '' | default('d', true) }}|{{ x.a | first }}|{{ x.a | last }}|{{ [3,1,2] | sort | join }}|{{ [3,1,2] | max }}|{{ x.a | reverse | list | length }}
{{ 'a&<b>' | e }}|{{ 'a&<b>' | safe }}|{{ '3' | int + 1 }}|{{ 'x' | int(9) }}|{{ '1.5' | float }}|{{ 2.567 | round(1) }}|{{ 42.7 | int }}|{{ -3 | abs }}|{{ 'a b  c' | wordcount }}|{{ 'hello world' | capitalize }}|{{ 'AB' | lower }}|{{ 'abcabc' | replace('b', 'X', 1) }}|{{ 'x' | center(5) }}|{{ '%05d' | format(42) }}|{{ [1,2,3,4,5] | batch(2) | list }}|{{ [1,1,2] | unique | list }}
{%- set ns = namespace(n=0, text='') -%}{%- for i in range(5) -%}{%- set ns.n = ns.n + i -%}{%- set ns.text = ns.text + i | string -%}{%- endfor -%}{{ ns.n }} {{ ns.text }}|{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}|{% for i in [] %}x{% else %}none{% endfor %}|{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}|{% for i in range(6) if i is even %}{{ i }}{% endfor %}|{{ range(1, 10, 3) | list }}|{{ range(5, 0, -2) | list }}
{% macro m(a, b='dd') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m(b='z', a='y') }}|{% set t %}captured {{ x.b }}{% endset %}{{ t | upper }}|{% filter upper %}shout{% endfilter %}|{% call(v) m2() %}{{ v }}{% endcall %}{% macro m2() %}{% endmacro %}|{% raw %}{{ raw }}{% endraw %}|{# comment #}after|{% if x.b > 0 and x.b < 2 %}one{% elif x.b %}many{% else %}zero{% endif %}|{% with q = 5 %}{{ q }}{% endwith %}
{{ raise_exception('stop: ' + x.b | string) }}|{{ x.missing.deeper }}|{{ 1 + 'a' }}|{{ x.s.nosuch() }}|{{ x.none.attr }}|{{ none | tojson }}|{{ undefined_name | tojson }}|{{ 1 // 0 }}|{{ x.a.append(1) }}|{{ 'x' | nosuchfilter }}|{{ [1, 2].index(2) }}|{{ 'é\u00e9\x41\101\t' }}|{{ 'don\'t' }}|{{ "it's" }}|{{ ('a', 'b')[0] }}|{{ {'k': 1}['k'] }}|{{ {'k': 1}.k }}|{{ x.people.0.n }}|{{ 10 | string | length }}|{{ 1 < 2 < 3 }}|{{ x.a[1:3] + [9] }}
{% generation %}kept{% endgeneration %}|  {%- generation -%}  trimmed  {%- endgeneration -%}  |{{ '{% generation %}' }}|{{ x.t ~ '' }}|{{ [none, true, 'a', 1.0] }}|{{ x['items']['n'] }}|{{ dict(a=1, b=[2]) }}|{{ x.items | string | length > 0 }}|{{ 1e3 }}|{{ 0.1 + 0.2 }}|{{ 100000000000000000000 }}|{{ 5 % 3.5 }}|{{ 'abc' | list }}|{{ {'a': {'b': 1}} | string }}|{{ 'a' < 'b' }}|{{ "\n" }}|{{ x.t == 1 }}"""


def render(source, messages, tools=None, add_generation_prompt=True, kwargs=None):
    try:
        out, _ = render_jinja_template([messages], tools=tools, chat_template=source, bos_token=BOS, eos_token=EOS,
                                       add_generation_prompt=add_generation_prompt, **(kwargs or {}))
        return out[0]
    except jinja2.exceptions.UndefinedError:
        return {"fails": True}
    except jinja2.exceptions.TemplateError as e:
        return {"raises": str(e)} if type(e) is jinja2.exceptions.TemplateError else {"fails": True}
    except Exception:
        return {"fails": True}


def main():
    results = {}
    for path in sorted(HERE.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        results[path.stem] = {name: render(source, **c) for name, c in CONVERSATIONS.items()}
    out = {"bos": BOS, "eos": EOS, "conversations": CONVERSATIONS, "results": results}
    (HERE / "renderings.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    rows = []
    for source in (piece for line in EXPRESSIONS.split("\n") for piece in split_templates(line)):
        rows.append({"source": source, "result": render(source, [], kwargs={"x": TREE})})
    (HERE / "expressions.json").write_text(json.dumps({"x": TREE, "rows": rows}, ensure_ascii=False, indent=1) + "\n",
                                           encoding="utf-8")
    for name, by_conversation in results.items():
        failed = [n for n, r in by_conversation.items() if isinstance(r, dict) and "fails" in r]
        print(f"{name}: {len(by_conversation)} conversations, fails: {failed}")
    print(len(rows), "expressions, fail:", [r["source"] for r in rows if isinstance(r["result"], dict)])


def split_templates(line):
    """Cuts at bars outside of tags."""
    out, piece, depth, i = [], "", 0, 0
    while i < len(line):
        two = line[i:i + 2]
        if two in ("{{", "{%", "{#"):
            depth += 1
            piece, i = piece + two, i + 2
        elif two in ("}}", "%}", "#}") and depth:
            depth -= 1
            piece, i = piece + two, i + 2
        elif line[i] == "|" and not depth:
            out, piece, i = out + [piece], "", i + 1
        else:
            piece, i = piece + line[i], i + 1
    return out + [piece]


main()
