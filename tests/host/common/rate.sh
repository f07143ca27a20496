# SPDX-License-Identifier: MIT OR Apache-2.0
# For scripts in whose guest a program writes 100 letters a second to the debug port. They define
# `size`, which tells how many there are.

# Whether it keeps its rate; $letters is what it wrote in 5 s. A host that is busy for a while is
# made up for afterwards.
rate() {
	local first
	for _ in 1 2 3 4 5; do
		first=$(size); sleep 5; letters=$(($(size) - first))
		[ "$letters" -ge 450 ] && return
	done
	return 1
}
