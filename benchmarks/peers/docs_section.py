"""The generated sections of docs/performance.md: one per topic and kind of machine, between two markers."""

import re

import environments as env
import table


def with_section(page, topic, kind, body):
    """`page` with the section of this topic and kind of machine replaced, or added after the topic's others."""
    begin, end = f"<!-- {topic}: {kind} -->", f"<!-- /{topic}: {kind} -->"
    section = f"{begin}\n### {kind}\n\n{body}\n{end}"
    if begin in page:
        return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: section, page, flags=re.S)
    anchor = f"<!-- {topic}: end of the sections -->"
    if anchor not in page:
        raise env.Unavailable(f"the page has no line '{anchor}'")
    return page.replace(anchor, section + "\n\n" + anchor)


def write_section(path, topic, kind, body):
    path.write_text(with_section(path.read_text(), topic, kind, body))
    env.say(f"wrote {path.relative_to(env.ROOT)}")


def write(result, path):
    write_section(path, "peers", result["machine"]["kind"], table.markdown(result))
