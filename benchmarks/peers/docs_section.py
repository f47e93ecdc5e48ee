"""The generated section of docs/performance.md: one per kind of machine, between two markers."""

import re

import environments as env
import table

BEGIN, END = "<!-- peers: {} -->", "<!-- /peers: {} -->"


def with_section(page, kind, body):
    """`page` with the section of this kind of machine replaced, or added after the others."""
    begin, end = BEGIN.format(kind), END.format(kind)
    section = f"{begin}\n### {kind}\n\n{body}\n{end}"
    if begin in page:
        return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: section, page, flags=re.S)
    anchor = "<!-- peers: end of the sections -->"
    if anchor not in page:
        raise env.Unavailable(f"docs/performance.md has no line '{anchor}'")
    return page.replace(anchor, section + "\n\n" + anchor)


def write(result, path):
    path.write_text(with_section(path.read_text(), result["machine"]["kind"], table.markdown(result)))
    env.say(f"wrote {path.relative_to(env.ROOT)}")
