"""Closed-loop load on an OpenAI-compatible server: so many clients, each with one streamed completion at a time.

Only the standard library, so that it measures any server alike. Prompts are token ids (no tokenizer in the way), their
lengths and the answers' lengths are drawn from a seeded generator: two servers see the same requests in the same order
per client. A token gap is the time between two events of a stream that bring text.

    python3 load.py --port 8000 --clients 16 --requests 64
"""

import argparse
import asyncio
import json
import random
import statistics
import time


def make_requests(count, seed, vocabulary, prompt_range, output_range):
    """`count` bodies of mixed lengths: log-uniform, so that short ones are common and long ones are there."""
    draw = random.Random(seed)

    def length(low, high):
        return round(low * (high / low) ** draw.random())

    requests = []
    for _ in range(count):
        prompt = [draw.randrange(100, vocabulary) for _ in range(length(*prompt_range))]
        requests.append(
            {
                "prompt": prompt,
                "max_tokens": length(*output_range),
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
    return requests


async def read_events(reader):
    """The data of server-sent events out of a chunked or plain HTTP body."""
    status = await reader.readline()
    headers = {}
    while (line := (await reader.readline()).strip()):
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r}: {(await reader.read(2000))!r}")
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    buffer = b""
    while True:
        if chunked:
            size = int((await reader.readline()).split(b";")[0] or b"0", 16)
            piece = await reader.readexactly(size)
            await reader.readline()
        else:
            piece = await reader.read(65536)
        if not piece:
            return
        buffer += piece
        while b"\n\n" in buffer:
            event, buffer = buffer.split(b"\n\n", 1)
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    yield line[5:].strip()


def completion_request(body):
    """The bytes of a POST /v1/completions on a connection of its own."""
    payload = json.dumps(body).encode()
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nConnection: close\r\n"
        + f"Content-Length: {len(payload)}\r\n\r\n".encode()
        + payload
    )


async def one_request(host, port, model, body):
    """Seconds of the start, of each event with text, and the number of tokens."""
    request = completion_request({**body, "model": model})
    reader, writer = await asyncio.open_connection(host, port)
    start = time.perf_counter()
    writer.write(request)
    times, tokens = [], None
    async for data in read_events(reader):
        if data == b"[DONE]":
            break
        event = json.loads(data)
        if "error" in event:
            raise RuntimeError(event["error"])
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
        if any(choice.get("text") for choice in event.get("choices", [])):
            times.append(time.perf_counter())
    writer.close()
    return start, times, tokens if tokens is not None else len(times)


async def run(host, port, model, clients, requests):
    queue = list(reversed(requests))
    results = []

    async def client():
        while queue:
            body = queue.pop()
            results.append((len(body["prompt"]), await one_request(host, port, model, body)))

    begin = time.perf_counter()
    await asyncio.gather(*[client() for _ in range(clients)])
    return time.perf_counter() - begin, results


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def summary(seconds, results):
    gaps = [b - a for _, (_, times, _) in results for a, b in zip(times, times[1:])]
    first = [times[0] - start for _, (start, times, _) in results if times]
    output = sum(tokens for _, (_, _, tokens) in results)
    prompt = sum(length for length, _ in results)
    return {
        "requests": len(results),
        "seconds": seconds,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "output_tokens_per_second": output / seconds,
        "total_tokens_per_second": (output + prompt) / seconds,
        "first_token_p50": statistics.median(first),
        "first_token_p99": quantile(first, 0.99),
        "gap_p50": statistics.median(gaps),
        "gap_p99": quantile(gaps, 0.99),
        "gap_max": max(gaps),
    }


def measure(host, port, model, clients, count, seed=1, vocabulary=40000, prompt_range=(16, 512), output_range=(16, 128)):
    requests = make_requests(count, seed, vocabulary, prompt_range, output_range)
    return summary(*asyncio.run(run(host, port, model, clients, requests)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="model")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps(measure(args.host, args.port, args.model, args.clients, args.requests, args.seed), indent=2))


if __name__ == "__main__":
    main()
