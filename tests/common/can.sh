# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs that receive from CAN interfaces, so that others send no sooner.

# is_heard INTERFACE: a program of Linux receives from it.
is_heard() { grep -qE "^ +($1|any) +[0-9a-f]+ " /proc/net/can/rcvlist_*; }
# listens INTERFACE: waits for that.
listens() { await "is_heard $1"; }
# candump_waits: candump waits for a frame of can0, in the realm if that has it.
candump_waits() { await 'is_heard can0 || crtos ps 2>/dev/null | grep -q " candump  *S"'; }
