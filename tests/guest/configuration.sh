#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos plan` proposes what `crtos up` takes; a file's mistakes are told by line; the command line
# comes before the file; a dry run says all that would be refused, and changes nothing.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
cd "$(mktemp -d)" || exit 1
file=/etc/crtos/realm.toml
online() { cat /sys/devices/system/cpu/online; }
before=$(online)
mkdir -p /etc/crtos

# Without options and without a file.
modprobe crtos
crtos up 2>err && fail 'up without anything'
grep -q 'remedy: `crtos plan >/etc/crtos/realm.toml`' err || { fail 'no remedy'; cat err; }

# What is planned is taken as it is.
crtos plan >$file || fail plan
cat $file
crtos up --dry-run >out || fail 'the plan cannot be taken'
grep -q 'would take CPU' out || { fail 'dry run says:'; cat out; }
[ "$(online)" = "$before" ] || fail 'the dry run took CPUs'
crtos up || fail 'up by the plan'
[ "$(crtos run -- cat /proc/self/comm)" = cat ] || fail 'no program'
[ "$(online)" != "$before" ] || fail 'no CPU was taken'
crtos down || fail down

# Each kind of value; the command line comes first.
cat >$file <<'END'
cpus = "core:2"
memory = "128M"
port = ["0x378-0x37f", "0x61"]
no-reset = true
linux-dma = "checked"
ethernet = ["10.9.0.2/24"]
END
crtos up --cpus 3 || fail 'up with a file and an option'
[ ! -e /sys/devices/system/cpu/cpu3/cache ] || [ "$(cat /sys/devices/system/cpu/cpu3/online)" = 0 ] ||
	fail 'the command line does not come first'
[ "$(cat /sys/devices/system/cpu/cpu2/online)" = 1 ] || fail 'the CPU of the file is gone as well'
[ -e /sys/class/net/crtos0 ] || fail 'no virtual Ethernet'
crtos device list | grep -q 0x378-0x37f || fail 'no ports'
crtos down || fail 'down again'
crtos up || fail 'up with the file alone'
[ "$(cat /sys/devices/system/cpu/cpu2/online)" = 0 ] || fail 'core:2 is not CPU 2'
crtos down || fail 'down at last'

# refused TEXT WORDS: a file that says TEXT is refused with WORDS, and nothing changes.
refused_file() {
	printf '%b' "$1" >$file
	crtos up >out 2>err && { fail "accepted: $1"; crtos down; }
	if ! grep -qF -- "$2" err || ! grep -q '  remedy: ' err || [ -s out ] ||
		[ "$(online)" != "$before" ]; then
		fail "$1"; cat err out
	fi
}
refused_file 'cpus = "3"\nmemroy = "1G"\n' "cannot read $file: line 2: \`memroy\` is unknown"
refused_file 'cpus = "3"\n\nmemory = "lots"\n' 'line 3: `memory`: `lots` is no amount of memory'
refused_file 'cpus = "3\n' 'line 1: '
refused_file 'cpus = "3"\nmemory = "128M"\nlocked = "yes"\n' 'line 3: `locked`: it is true or false'
refused_file 'cpus = "node:7"\nmemory = "128M"\n' 'this machine has no such node'
refused_file 'cpus = "node:0"\nmemory = "128M"\n' 'it has the boot CPU'
refused_file 'cpus = "core:99"\nmemory = "128M"\n' 'choose one of CPUs 0-3'
refused_file 'cpus = "0"\nmemory = "128M"\n' 'it is the boot CPU'

# A dry run tells of all that would be refused.
printf 'cpus = "99"\nmemory = "640G"\ndevice = ["absent0"]\n' >$file
crtos up --dry-run >out 2>err && fail 'a dry run of what is refused'
grep -q 'would take 640 GiB' out || { fail 'no steps'; cat out; }
for words in 'no such CPU' 'Linux can give up' absent0; do
	grep -q "$words" err || { fail "not told: $words"; cat err; }
done
rm $file
crtos down --unload || fail unload
exit $failed
