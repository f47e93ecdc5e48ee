"""/metrics under Prometheus' own parser. Arguments: BASE_URL KEY."""
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

request = urllib.request.Request(sys.argv[1] + "/metrics", headers={"Authorization": "Bearer " + sys.argv[2]})
with urllib.request.urlopen(request) as answer:
    families = {f.name: f for f in text_string_to_metric_families(answer.read().decode())}
for name, kind in {"vllm:num_requests_running": "gauge", "vllm:num_requests_waiting": "gauge", "vllm:kv_cache_usage_perc": "gauge",
                   "vllm:prompt_tokens": "counter", "vllm:generation_tokens": "counter", "vllm:request_success": "counter",
                   "vllm:prefix_cache_queries": "counter", "vllm:prefix_cache_hits": "counter", "vllm:num_preemptions": "counter",
                   "vllm:time_to_first_token_seconds": "histogram", "vllm:inter_token_latency_seconds": "histogram",
                   "vllm:e2e_request_latency_seconds": "histogram", "spyre_compiles_after_ready": "counter"}.items():
    assert families[name].type == kind, (name, families[name].type)
    assert families[name].documentation
assert [s.value for s in families["spyre_compiles_after_ready"].samples] == [0]
assert sum(s.value for s in families["vllm:request_success"].samples) > 0
first = families["vllm:time_to_first_token_seconds"].samples
buckets = [s.value for s in first if s.name.endswith("_bucket")]
assert buckets == sorted(buckets) and buckets[-1] == [s.value for s in first if s.name.endswith("_count")][0] > 0
print("metrics ok:", len(families), "families")
