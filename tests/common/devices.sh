# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Devices that come to the realm and go while it runs.

# listed: those that cells have, of which kind, and which cell.
listed() { crtos device list --json | jq -c 'map([.function, .kind, .cell])'; }
# heap: how many bytes of its own memory the realm's kernel uses.
heap() { crtos stats --json | jq .realm.heap_used_bytes; }
