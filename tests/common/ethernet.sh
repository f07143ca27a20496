# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The virtual Ethernet: Linux is 10.9.0.1, and the realm 10.9.0.2.

# ethernet_up [OPTION...]: starts the realm with it, on CPU 3 or CPUS, and gives Linux's end its
# address.
ethernet_up() {
	crtos up --cpus "${CPUS:-3}" --memory 256M --ethernet 10.9.0.2/24 "$@" || { crtos log; return 1; }
	ip address add 10.9.0.1/24 dev crtos0 && ip link set crtos0 up || return 1
	await '[ "$(cat /sys/class/net/crtos0/carrier)" = 1 ]'
}

# here COMMAND...: runs it in the realm, for two minutes at most.
here() { timeout 120 crtos run -- "$@"; }

# counted WHAT: a counter of Linux's end.
counted() { cat "/sys/class/net/crtos0/statistics/$1"; }

# programs_end: ends all programs of the realm.
programs_end() {
	crtos ps --json | gojq -r '.[].pid' | xargs -r kill -9
	await '[ "$(crtos ps --json | gojq length)" = 0 ]'
}
