# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs that hear an interface of the realm while it is flooded. They begin and end outside of
# what is measured: one of them is more urgent than who is measured.

# listeners_begin INTERFACE: 8 sockets with the longest filters, and a thread that leads.
listeners_begin() {
	crtos run -- "$PROGRAMS/net-hostile" "$1" listen &
	listener=$!
	crtos run -- "$PROGRAMS/net-hostile" "$1" wait >waits &
	waiter=$!
	await 'crtos ps | grep -q net-hostile && grep -q waits waits'
}
listeners_end() {
	kill -9 $listener $waiter
	wait $listener $waiter
	true
}
