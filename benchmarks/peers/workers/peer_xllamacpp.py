"""llama.cpp through PyPI's xllamacpp: its server's engine in this process, without HTTP."""

import threading
import time

import channel
import xllamacpp


class Llama:
    """Opens the model anew when a run wants other slots: a cache that fits is what llama.cpp is fastest with."""

    def __init__(self, options):
        self.options = options
        self.shape = None
        self.server = None

    def fit(self, slots, length):
        shape = (slots, length)
        if self.shape == shape:
            return
        self.server = None
        o = self.options
        p = xllamacpp.CommonParams()
        p.model.path = o["gguf"]
        p.n_parallel, p.n_ctx = slots, slots * length
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = o["threads"]
        p.n_batch, p.n_ubatch = 2048, 512
        p.cont_batching, p.kv_unified = True, False  # a sequence looks at its own keys only
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
        p.n_gpu_layers, p.cache_ram_mib, p.warmup = 0, 0, True
        p.ctx_shift = False
        self.server = xllamacpp.Server(p)
        self.shape = shape

    def run(self, prompts, output_tokens):
        # Slots are of 256 cells, in which llama.cpp's caches come anyway.
        length = -(-(len(prompts[0]) + output_tokens + 1) // 256) * 256
        fresh = self.shape != (len(prompts), length)
        self.fit(len(prompts), length)
        if fresh:  # first touch of the cache
            self.requests([p[:16] for p in prompts], 2)
        return self.requests(prompts, output_tokens)

    def requests(self, prompts, output_tokens):
        series = [[] for _ in prompts]
        errors = []
        begin = time.perf_counter()

        def request(index):
            body = {
                "prompt": prompts[index], "n_predict": output_tokens, "max_tokens": output_tokens, "ignore_eos": True,
                "temperature": 0, "samplers": ["top_k"], "top_k": 1, "cache_prompt": False, "stream": True,
                "timings_per_token": True, "id_slot": index if len(prompts) > 1 else 0}  # fmt: skip

            def came(event):
                now = time.perf_counter() - begin
                if "error" in event or "code" in event:
                    errors.append(str(event.get("message", event)))
                    return
                count = (event.get("timings") or {}).get("predicted_n", 0)
                if count and (not series[index] or count > series[index][-1][1]):
                    series[index].append((now, count))

            self.server.handle_completions(body, came)

        threads = [threading.Thread(target=request, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise RuntimeError(errors[0])
        if not all(s and s[-1][1] >= output_tokens for s in series):
            raise RuntimeError(f"{[s[-1][1] if s else 0 for s in series]} tokens came, {output_tokens} were asked for")
        return series


def open_engine(options):
    engine = Llama(options)
    engine.fit(1, 512)
    return engine, {
        "version": f"xllamacpp {xllamacpp.__version__}",
        "note": "f16 KV, flash attention; llama.cpp built for AVX2, its server's engine without HTTP",
        "system": xllamacpp.get_system_info(),
    }


if __name__ == "__main__":
    channel.serve(open_engine, Llama.run)
