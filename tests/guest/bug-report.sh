#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos report` has logs, versions and states, for a user what they may read, and nothing of the
# memory of programs.
# kernels: 6.12
# more kernels: 6.1
# shared: yes
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
cd "$(mktemp -d)" || exit 1
chmod 777 .
secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
printf %s "$secret" >secret
crtos run -- python3 -c 'import sys, time
kept = open("secret").read()
open("reads", "w").close()
time.sleep(1000)' & program=$!
await '[ -e reads ]' || fail 'no program'
dmesg --clear
echo '<3>crtos: a line for the report' >/dev/kmsg
crtos report -o report.tar.gz >out 2>err || { fail report; cat err; }
cat out
[ "$(stat -c %a report.tar.gz)" = 600 ] || fail 'others may read it'
mkdir all && tar xzf report.tar.gz -C all --strip-components=1 || fail 'no archive'
grep -q '^written to report.tar.gz$' out || fail 'not told where'
diff <(head -n -2 out) all/CONTENTS || fail CONTENTS
# The configuration alone is missing, where there is no file.
[ "$(grep -c MISSING all/CONTENTS)" -le 1 ] || { fail 'parts are missing'; cat all/CONTENTS; }
for part in version check stats ps cells devices links; do
	gojq -e . "all/$part.json" >/dev/null || fail "$part.json"
done
gojq -e --argjson pid "$program" 'any(.[]; .pid == $pid)' all/ps.json >/dev/null ||
	fail 'no program in ps.json'
grep -q 'hypervisor' all/hypervisor.log || fail 'no log of the hypervisor'
[ -s all/kernel.log ] || fail 'no log of the kernel'
grep -q 'crtos: a line for the report' all/dmesg.txt || fail dmesg
grep -q 'crtos: a line for the report' all/warnings.txt || fail warnings
grep -qr "$secret" all && fail 'memory of a program'
# A user gets less, and is told what is missing.
setpriv --reuid 65534 --clear-groups crtos report -o user.tar.gz >out 2>err ||
	{ fail 'as a user'; cat err; }
grep -q 'kernel.log .*MISSING: ' out || { fail 'not told what is missing'; cat out; }
tar tzf user.tar.gz | grep -q '/cpuinfo.txt$' || fail 'nothing for a user'
tar tzf user.tar.gz | grep -q '/kernel.log$' && fail 'the log of the kernel for a user'
# A file that others could read is replaced, and so is a link, not what it leads to.
echo before >old && chmod 644 old && ln -s old link
crtos report -o link >/dev/null || fail 'a link'
[ "$(cat old)" = before ] && [ ! -L link ] || fail 'what a link leads to is written'
crtos report -o old >/dev/null || fail 'a file'
[ "$(stat -c %a old)" = 600 ] || fail 'others may read what was there before'
# A disk that is full.
mkdir small && mount -t tmpfs -o size=4k none small
crtos report -o small/report 2>err && fail 'written to a full disk'
grep -q 'No space left on device' err && grep -q 'crtos explain disk-full' err ||
	{ fail 'disk'; cat err; }
[ "$(ls small)" = '' ] || fail 'a part of a file is left'
umount small
kill $program
wait $program 2>/dev/null
exit $failed
