#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Every refusal of the command line says what was asked, why not, and what to do; nothing has
# changed afterwards.
# kernels: 6.1
# more kernels: 6.12-rt
# realm: no
# shared: yes
set -u
last=$(($(getconf _NPROCESSORS_CONF) - 1))
failed=0
online() { cat /sys/devices/system/cpu/online; }
before=$(online)

# refused STATUS WORDS COMMAND...: COMMAND ends with STATUS, says WORDS on standard error, and
# nothing on standard output.
refused() {
	local status=$1 words=$2 got; shift 2
	"$@" >out 2>err; got=$?
	if [ $got = "$status" ] && grep -qF -- "$words" err && [ ! -s out ] && [ "$(online)" = "$before" ]; then
		echo "ok $*"
	else
		echo "FAILED $*: status $got, CPUs online $(online), said:"; cat err out
		failed=1
	fi
}
# done_well COMMAND...: COMMAND succeeds.
done_well() { "$@" || { echo "FAILED $*: status $?"; failed=1; }; }
cd "$(mktemp -d)" || exit 1

# Without the module.
modprobe -r crtos 2>/dev/null
for verb in ps stats log down; do
	refused 1 'crtos is not up' crtos $verb
done
refused 1 'crtos is not up' crtos cell list
refused 125 'crtos is not up' crtos run -- busybox true
refused 1 'no such CPU; this machine has' crtos up --cpus 99 --memory 64M
modprobe -r crtos 2>/dev/null

# Programs that cannot be run.
printf '#!/absent/sh\n' >script; printf '#!./loop\n' >loop; chmod +x script loop
printf 'hello\n' >text; chmod +x text
cp /bin/busybox closed; chmod a-x closed
head -c 18 /bin/busybox >arm; printf '\267\0' >>arm
tail -c +21 /bin/busybox | head -c 4096 >>arm; chmod +x arm
refused 127 'program not found' crtos run -- ./absent
refused 127 'add its directory to PATH' crtos run -- no-such-program
refused 126 'it is a directory' crtos run -- .
refused 126 'not executable' crtos run -- ./closed
refused 126 'the interpreter of ./script, /absent/sh: No such file' crtos run -- ./script
refused 126 'interpret each other' crtos run -- ./loop
refused 126 'not an x86-64 ELF executable' crtos run -- ./text
refused 126 'not for x86-64' crtos run -- ./arm
sed 's|/lib64/ld-linux-x86-64.so.2|/lib64/ld-linux-x86-64.so.9|' /bin/true >loaderless; chmod +x loaderless
refused 126 'needs the loader /lib64/ld-linux-x86-64.so.9, which is missing' crtos run -- ./loaderless

# What cannot be given to the realm.
refused 1 'boot CPU' crtos up --cpus 0 --memory 64M
refused 1 'boot CPU' crtos up --cpus "0-$last" --memory 64M
refused 1 'Linux can give up' crtos up --cpus "$last" --memory 64G
refused 1 'needs at least 64 MiB' crtos up --cpus "$last" --memory 2M
refused 1 'as private memory' crtos up --cpus "$last" --memory 64M --private 64M
refused 1 'No such file or directory' crtos up --cpus "$last" --memory 64M --kernel /absent
refused 1 'not an ELF file for x86-64' crtos up --cpus "$last" --memory 64M --kernel ./text
refused 1 'not statically linked' crtos up --cpus "$last" --memory 64M --kernel /bin/ls
refused 1 'only root' setpriv --reuid 65534 --clear-groups crtos up --cpus "$last" --memory 64M
# Real-time kernels that are none: one breaks its bounds, one never reports itself.
inmates=/usr/lib/crtos/inmates
refused 1 'touched an I/O port that is not its own (0x70)' crtos up --cpus "$last" --memory 64M --kernel $inmates/prober.elf --command-line port
grep -q 'prober: port' err || { echo 'FAILED the log is not shown'; cat err; failed=1; }
refused 1 'did not report itself within' crtos up --cpus "$last" --memory 64M --kernel $inmates/latency.elf

echo 0 >"/sys/devices/system/cpu/cpu$last/online"
before=$(online)
refused 1 'it is offline' crtos up --cpus "$last" --memory 64M
echo 1 >"/sys/devices/system/cpu/cpu$last/online"
before=$(online)

# A module that is missing.
modprobe -r crtos
module=$(find /lib/modules/"$(uname -r)" -name 'crtos.ko*')
mv "$module" "$module.away"
refused 1 "not installed for the running kernel $(uname -r)" crtos up --cpus "$last" --memory 64M
crtos check >out; grep -q 'MISSING *module:' out || { echo 'FAILED check without the module'; failed=1; }
# One for a kernel without something that this one has. Linux does not compare the release where
# there are checksums of symbols.
LC_ALL=C sed '/vermagic=/s/mod_unload/mod_upload/' "$module.away" >"$module"
refused 1 'it was built for another kernel' crtos up --cpus "$last" --memory 64M
grep -q "remedy: install the headers of $(uname -r)" err || { echo 'FAILED no remedy'; cat err; failed=1; }
mv "$module.away" "$module"

# A dry run changes nothing, and says all that would be refused.
crtos up --cpus 99 --memory 64G --dry-run >out 2>err && { echo 'FAILED a refused dry run'; failed=1; }
if ! grep -q 'no such CPU' err || ! grep -q 'Linux can give up' err; then
	echo 'FAILED a refused dry run says:'; cat out err; failed=1
fi
crtos up --cpus "$last" --memory 64M --dry-run >out || { echo 'FAILED dry run'; failed=1; }
grep -q '^protected: .*neither memory nor CPUs of cells$' out || { echo 'FAILED dry run says:'; cat out; failed=1; }
grep -q "would take CPU $last from Linux" out || { echo 'FAILED dry run says:'; cat out; failed=1; }
grep -q '^crtos ' /proc/modules && { echo 'FAILED the dry run loaded the module'; failed=1; }

# Once up, again.
done_well crtos up --cpus "$last" --memory 128M
before=$(online)
refused 1 "already up on CPU $last" crtos up --cpus 1 --memory 64M
refused 1 'it is busy: a cell has it already' crtos cell create other --cpus "$last"
refused 1 'it is the real-time realm' crtos cell stop realtime
refused 1 'it is the real-time realm' crtos cell destroy realtime
refused 1 'no such cell' crtos cell start nobody /bin/busybox
chmod 600 /dev/crtos
refused 125 'no permission to use /dev/crtos' setpriv --reuid 65534 --clear-groups crtos run -- busybox true
done_well crtos down
before="0-$last"
refused 1 'crtos is not up' crtos down
done_well crtos down --unload
done_well crtos down --unload
exit $failed
