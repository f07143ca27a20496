#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Whoever may load only the module that was installed gets only the hypervisor that is in it: no
# file, wherever the firmware loader looks, is launched in its place.
# kernels: 6.12
# more kernels: 6.1 6.1-rt 6.12-rt
# realm: no
# shared: yes
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
search=/sys/module/firmware_class/parameters/path
folders="/lib/firmware /lib/firmware/updates /lib/firmware/$(uname -r) /tmp/firmware"
last=$(($(getconf _NPROCESSORS_CONF) - 1))

# A hypervisor that would be launched, and says in its log that it is another one.
sed 's/hypervisor: version/OTHERVISOR: version/' /usr/src/crtos-*/hypervisor.bin >/tmp/hypervisor.bin
cmp -s /usr/src/crtos-*/hypervisor.bin /tmp/hypervisor.bin && { echo 'it is no other one'; exit 1; }
before=$(cat $search)
for folder in $folders; do
	mkdir -p "$folder/crtos"
	cp /tmp/hypervisor.bin "$folder/crtos/hypervisor.bin" || exit 1
done
echo -n /tmp/firmware >$search

crtos down --unload 2>/dev/null
modprobe crtos || exit 1
dmesg --clear
crtos up --cpus "$last" --memory 128M || fail up
crtos log --hypervisor | grep -q 'hypervisor: version' || fail "no words of the module's hypervisor"
crtos log --hypervisor | grep OTHERVISOR && fail 'another hypervisor runs'
crtos run -- busybox true || fail run
crtos down || fail down

echo -n "$before" >$search
for folder in $folders; do
	rm -r "$folder/crtos"
done
complaints | grep . && fail dmesg
exit $failed
