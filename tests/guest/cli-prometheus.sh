#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Prometheus' own client reads `crtos stats --prometheus`, and finds the numbers of `--json` there.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# packages: python3-prometheus-client
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }

# read.py PAGE [STATISTICS THREADS]
cat >read.py <<'END'
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = {f.name: f for f in text_string_to_metric_families(open(sys.argv[1]).read())}
def value(name, **labels):
    family = families[name.removesuffix("_total")]
    [found] = [s.value for s in family.samples
               if s.name == name and labels.items() <= s.labels.items()]
    return found
if len(sys.argv) == 2:
    assert list(families) == ["crtos_up"] and value("crtos_up") == 0
    sys.exit()
statistics, threads = (json.load(open(name)) for name in sys.argv[2:])
assert all(f.documentation and f.type in ("counter", "gauge") for f in families.values())
assert value("crtos_up") == 1
realm = statistics["realm"]
assert value("crtos_realm_memory_bytes") == realm["pool_bytes"]
assert value("crtos_realm_heap_bytes") == realm["heap_bytes"]
for cpu in statistics["cpus"]:
    # It is read later than the page, and they only grow.
    counted = value("crtos_vm_exits_total", cpu=str(cpu["cpu"]), reason="icr")
    assert 0 <= counted <= cpu["exits"]["icr"], (counted, cpu)
idle = value("crtos_realm_idle_seconds_total", cpu="3")
assert 0 < idle <= realm["idle_ns"][0] / 1e9 + 1e-6, idle
[thread] = [t for t in threads if t["command"].startswith("o")]
labels = {"pid": str(thread["pid"]), "tid": str(thread["tid"]), "command": 'o"d\\d'}
assert 0 < value("crtos_thread_calls_total", by="linux", **labels) <= thread["remote_calls"]
assert value("crtos_process_memory_bytes", pid=labels["pid"]) > 0
print(len(families), "families")
END

crtos stats --prometheus >page || fail 'without the realm'
python3 read.py page || { fail 'without the realm: the page'; cat page; }
crtos up --cpus 3 --memory 256M || exit 1
# Names of programs may have what quotes a label.
cp /bin/sleep 'o"d\d'
crtos run -- './o"d\d' 1000 &
program=$!
await 'crtos ps --json | gojq -e "any(.[]; .pid == $program and .state != \"R\" and .remote_calls > 0)" >state' 300 ||
	fail 'the program does not sleep'
sleep 0.5
crtos stats --prometheus >page || fail stats
crtos stats --json >statistics
crtos ps --json >threads
python3 read.py page statistics threads || { fail 'the page'; cat page; }
kill $program
wait $program
crtos down || fail down
crtos stats --prometheus >page || fail 'after down'
python3 read.py page || fail 'after down: the page'
exit $failed
