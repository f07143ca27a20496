# SPDX-License-Identifier: MIT OR Apache-2.0
# What goes before each script of tests/guest: scripts are sent to the guest one by one.

# Complaints in Linux's log. That an interrupt took long says something of a busy host only.
complaints() { dmesg --level emerg,alert,crit,err,warn | grep -v 'hrtimer: interrupt took'; }

# Free memory, with the pages in Linux's lists of each CPU.
free_kib() { echo 3 >/proc/sys/vm/drop_caches; awk '/MemFree/ { kib += $2 } $1 == "count:" { kib += 4 * $2 } END { print kib }' /proc/meminfo /proc/zoneinfo; }

# await CONDITION: waits until the shell line CONDITION is true, for so long that it never will be otherwise.
await() { for _ in {1..1200}; do eval "$1" && return; sleep 0.1; done; return 1; }
