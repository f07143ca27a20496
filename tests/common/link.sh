# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The only link that there is.

# peer NUMBER: the state of a peer.
peer() { crtos link list --json | gojq -r --argjson peer "$1" '.[0].peers[$peer].state'; }
