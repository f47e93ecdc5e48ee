"""What open streams cost: anonymous memory of the server with so many streamed requests waiting for their next token.

    python3 idle_streams.py --pid $(pidof spyre) --port 8000 --streams 1000

Each stream is one connection with one streamed completion; the server works on a few and the others wait, queued. The
figure is the growth of RssAnon from before the connections to the moment when all have been accepted, and again after
they have gone. Run it twice on one server: the first time the growth is mostly the KV cache, whose pages become
resident when they are first written; what is left the second time is the streams.
"""

import argparse
import asyncio
import json
import pathlib
import re

import load


def rss_anon(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


async def open_stream(args):
    body = {"model": args.model, "prompt": [100 + i % 900 for i in range(32)], "stream": True, "ignore_eos": True,
            "max_tokens": 512}  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", args.port)
    writer.write(load.completion_request(body))
    await writer.drain()
    return reader, writer


async def run(args):
    before = rss_anon(args.pid)
    streams = []
    for _ in range(args.streams):
        streams.append(await open_stream(args))
    await asyncio.sleep(args.seconds)
    during = rss_anon(args.pid)
    refused = 0
    for reader, _ in streams:
        refused += b" 200 " not in bytes(reader._buffer[:64]) and bool(reader._buffer)  # what has come so far
    for _, writer in streams:
        writer.close()
    await asyncio.sleep(args.seconds)
    print(json.dumps({"streams": args.streams, "refused": refused, "rss_anon_mib_before": before,
                      "growth_mib": during - before, "growth_after_mib": rss_anon(args.pid) - before}))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="model")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
