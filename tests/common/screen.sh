# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The screen of an X server (Xvfb) that keeps it in the current folder.

# still LOOKS: waits until what is on it does not change any more, for so many looks at most.
still() {
	local before='' now
	for _ in $(seq "$1"); do
		now=$(md5sum <Xvfb_screen0)
		[ "$now" != "$before" ] || return 0
		before=$now
		sleep 2
	done
	return 1
}
