#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Each of many wrong configurations is refused by a message with the cause, a remedy and a code that
# has a section in docs/troubleshooting.md. Nothing has changed then.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# tier: full
# shared: yes
# uses: explained
# Variables are those of common/explained.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
last=$(($(getconf _NPROCESSORS_CONF) - 1))
good="cpus = \"$last\"\nmemory = \"128M\"\n"
modprobe crtos

# file NAME CODE CAUSE TEXT: a configuration with TEXT is refused.
file() {
	printf '%b' "$4" >realm.toml
	explained "$1" "$2" "$3" crtos up --config realm.toml
}
bad='bad-configuration'
file 'no TOML' $bad 'line 1: ' 'cpus = "3\n'
file 'an unknown name' $bad 'line 2: `memroy` is unknown' 'cpus = "3"\nmemroy = "1G"\n'
file 'a name twice' $bad 'line 2: ' 'cpus = "3"\ncpus = "2"\n'
file 'memory without a unit' $bad 'line 2: `memory`: .*512M' 'cpus = "3"\nmemory = "512"\n'
file 'memory that is no amount' $bad 'line 2: `memory`: `lots` is no amount' 'cpus = "3"\nmemory = "lots"\n'
file 'CPUs backwards' $bad 'line 1: `cpus`: .*runs backwards' 'cpus = "3-1"\nmemory = "128M"\n'
file 'CPUs that are no numbers' $bad 'line 1: `cpus`: .*no CPU number' 'cpus = "three"\nmemory = "128M"\n'
file 'a list where one value belongs' $bad 'line 1: `cpus`: it takes one value' 'cpus = ["2", "3"]\nmemory = "128M"\n'
file 'a text where true or false belongs' $bad 'line 3: `locked`: it is true or false' "${good}locked = \"yes\"\n"
file 'a port that is none' $bad 'line 3: `port`: ' "${good}port = [\"70000\"]\n"
file 'an address that is none' $bad 'line 3: `ethernet`: ' "${good}ethernet = [\"10.9.0.300/24\"]\n"
file 'a CPU that is not there' cpu-absent 'CPU 99: no such CPU; this machine has' 'cpus = "99"\nmemory = "128M"\n'
file 'the boot CPU' cpu-boot 'CPU 0: it is the boot CPU' 'cpus = "0"\nmemory = "128M"\n'
file 'a core that is not there' core-or-node 'core of CPU 99' 'cpus = "core:99"\nmemory = "128M"\n'
file 'a node that is not there' core-or-node 'NUMA node 7: this machine has no such node' 'cpus = "node:7"\nmemory = "128M"\n'
file 'too little memory' memory-too-small '16 MiB: it needs at least 64 MiB' "cpus = \"$last\"\nmemory = \"16M\"\n"
file 'more memory than there is' memory-short '64 GiB of memory: Linux can give up' "cpus = \"$last\"\nmemory = \"64G\"\n"
file 'all memory private' private-memory 'between 8 MiB and' "${good}private = \"128M\"\n"
file 'a doorbell on a CPU of the realm' doorbell-cpu 'it is not one of Linux then' "${good}doorbell-cpu = $last\n"
file 'a kernel that is not there' file-missing '/absent: No such file' "${good}kernel = \"/absent\"\n"
file 'a kernel for Linux' image-unfit 'not statically linked' "${good}kernel = \"/bin/ls\"\n"
file 'a device that is not there' device-unknown 'no device `absent0`' "${good}device = [\"absent0\"]\n"
file 'the console' device-in-use "it is Linux's console" "${good}device = [\"ttyS0\"]\n"
file 'a link that is not there' link-unknown "no link 'absent'" "${good}link = [\"absent\"]\n"
explained 'no such file' file-missing 'absent.toml: No such file' crtos up --config absent.toml
explained 'neither options nor a file' no-configuration 'no options, and there is no /etc' crtos up
explained 'an unknown option' usage "unexpected argument '--fast'" crtos up --fast
crtos down --unload || fail unload
echo "$count wrong configurations"
[ $count -ge 20 ] || fail 'too few'
exit "$failed"
