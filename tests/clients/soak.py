"""A long, rude day for `spyre serve`: thousands of requests, some of which leave, dawdle or are nonsense.

Only the standard library. The mix is drawn from a seed, so what should come of every request is known beforehand:

    finish     runs to its max_tokens (streamed or not)                 finished_reason="length"
    cancel     the client goes after a few events                       finished_reason="abort"
    vanish     the client goes right after sending                      finished_reason="abort", or never submitted
    slow       reads a few bytes at a time, to the end                  finished_reason="length"
    nonsense   a field is wrong                                         a 4xx, nothing is submitted

At the end the server must be idle with no block in use, its counters must equal the mix, and its resident memory must be
what it was after the first tenth, within --rss-percent.

    python3 tests/clients/soak.py --spyre build/release/bin/spyre --model MODEL --requests 20000
"""

import argparse
import asyncio
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

KINDS = {"finish": 60, "cancel": 15, "vanish": 8, "slow": 5, "nonsense": 12}

NONSENSE = [
    {"temperature": "hot"}, {"temperature": -1}, {"top_p": 0}, {"top_p": 2}, {"top_k": -7}, {"max_tokens": -1},
    {"max_tokens": 10**9}, {"n": 0}, {"stop": [""]}, {"logit_bias": {"x": 1}}, {"prompt": []}, {"prompt": [10**8]},
    {"seed": "x"}, {"logprobs": 10**6}, {"min_p": 2}, {"presence_penalty": 9}, {"repetition_penalty": 0},
]  # fmt: skip


class Soak:
    def __init__(self, args, port):
        self.args, self.port = args, port
        self.draw = random.Random(args.seed)
        self.expected = {"length": 0, "nonsense": 0}
        self.left = {"cancel": 0, "vanish": 0}
        self.failures = []
        self.done = 0

    def body(self):
        draw = self.draw
        shared = [7 + i % 50 for i in range(64)]  # many prompts begin alike: prefix hits
        prompt = shared[: draw.choice([0, 0, 16, 40, 64])] + [
            draw.randrange(5, self.args.vocabulary) for _ in range(draw.randrange(1, 60))
        ]
        body = {"model": self.args.name, "prompt": prompt, "max_tokens": draw.randrange(1, 24), "ignore_eos": True,
                "temperature": draw.choice([0, 0, 0.8]), "seed": draw.randrange(1000)}  # fmt: skip
        if draw.random() < 0.2:
            body["n"] = draw.randrange(2, 4)
        if draw.random() < 0.2:
            body["logprobs"] = draw.randrange(0, 4)
        return body

    async def connect(self, body):
        payload = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\nConnection: close\r\n"
            + f"Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        await writer.drain()
        return reader, writer

    async def request(self, kind):
        body = self.body()
        body["stream"] = kind in ("cancel", "slow") or self.draw.random() < 0.5
        if kind == "nonsense":
            body.update(self.draw.choice(NONSENSE))
        if kind in ("cancel", "vanish"):
            body["max_tokens"] = 200  # long enough to be left while it runs
        choices = body.get("n", 1)
        reader, writer = await self.connect(body)
        try:
            if kind == "vanish":
                self.left["vanish"] += choices
                return
            if kind == "cancel":
                self.left["cancel"] += choices
                status = await reader.readline()
                self.check(b" 200 " in status, kind, status)
                await reader.read(self.draw.randrange(1, 2000))
                return
            answer = b""
            size = 64 if kind == "slow" else 1 << 20
            while piece := await reader.read(size):
                answer += piece
                if kind == "slow":
                    await asyncio.sleep(0.001)
            status = answer.split(b"\r\n", 1)[0]
            if kind == "nonsense":
                self.expected["nonsense"] += 1
                self.check(re.search(rb" 4\d\d ", status), kind, answer[:300], body)
            else:
                self.expected["length"] += choices
                self.check(b" 200 " in status, kind, answer[:300], body)
                self.check(answer.count(b'"finish_reason":"length"') == choices, kind, answer[-400:], body)
        finally:
            writer.close()

    def check(self, held, *what):
        if not held:
            self.failures.append(repr(what)[:600])

    async def run(self):
        kinds = self.draw.choices(list(KINDS), list(KINDS.values()), k=self.args.requests)

        async def client():
            while kinds:
                kind = kinds.pop()
                try:
                    await asyncio.wait_for(self.request(kind), 120)
                except Exception as error:  # noqa: BLE001: whatever it was, it is a finding
                    self.failures.append(f"{kind}: {error!r}")
                self.done += 1
                if self.done == self.args.requests // 10:
                    self.early = resident(self.args.pid)
                if self.done % 1000 == 0:
                    print(self.done, "requests, resident MiB {:.2f}, anonymous {:.2f}".format(*resident(self.args.pid)), flush=True)

        await asyncio.gather(*[client() for _ in range(self.args.clients)])


def resident(pid):
    """MiB: all, and the part that no file backs."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(name + r":\s+(\d+)", text)[1]) / 1024 for name in ("VmRSS", "RssAnon")]


async def metrics(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    values = {}
    for line in text.splitlines():
        if match := re.match(r"^([a-z_:]+)(\{[^}]*\})? ([-+0-9.eE]+)$", line):
            reason = re.search(r'finished_reason="(\w+)"', match[2] or "")
            values[match[1] + (":" + reason[1] if reason else "")] = float(match[3])
    return values


def start(args):
    process = subprocess.Popen(
        [args.spyre, "serve", args.model, "--port", "0", "--served-model-name", args.name, *args.spyre_args.split()],
        stdout=subprocess.PIPE, text=True)  # fmt: skip
    line = process.stdout.readline()
    match = re.search(r":(\d+)\b", line)
    if not match:
        raise SystemExit(f"no port in the ready line: {line!r}")
    return process, int(match[1])


def settle(port):
    for _ in range(100):
        values = asyncio.run(metrics(port))
        if values["vllm:num_requests_running"] == 0 and values["vllm:num_requests_waiting"] == 0:
            return values
        time.sleep(0.1)
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spyre", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="soak")
    parser.add_argument("--spyre-args", default="--max-model-len 384 --num-gpu-blocks-override 12 --max-num-seqs 16")
    parser.add_argument("--vocabulary", type=int, default=120)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rss-percent", type=float, default=2.0)
    args = parser.parse_args()
    process, port = start(args)
    args.pid = process.pid
    soak = Soak(args, port)
    try:
        asyncio.run(soak.run())
        values = settle(port)
        late = resident(args.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    success = {r: values.get(f"vllm:request_success_total:{r}", 0) for r in ("stop", "length", "abort", "error")}
    print(json.dumps({"expected": soak.expected, "left": soak.left, "counted": success,
                      "preemptions": values.get("vllm:num_preemptions_total"),
                      "resident_mib": [soak.early, late], "exit": status}))  # fmt: skip
    left = sum(soak.left.values())
    soak.check(status == 0, "exit status", status)
    soak.check(values["vllm:kv_cache_usage_perc"] == 0, "blocks in use", values["vllm:kv_cache_usage_perc"])
    soak.check(values.get("spyre_compiles_after_ready_total") == 0, "compiles after ready")
    soak.check(success["error"] == 0 and success["stop"] == 0, "no request may fail", success)
    # A client that goes may go too late (the answer was already whole) or before its request was read.
    soak.check(soak.expected["length"] <= success["length"] <= soak.expected["length"] + left, "length", success)
    soak.check(success["abort"] <= left, "abort", success)
    soak.check(late[0] <= soak.early[0] * (1 + args.rss_percent / 100), "memory grew", soak.early, late)
    for failure in soak.failures[:20]:
        print("FAILED", failure, file=sys.stderr)
    sys.exit(1 if soak.failures else 0)


if __name__ == "__main__":
    main()
