#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# O_DIRECT: a disk's blocks go straight into the pages of a program in the realm (get_user_pages),
# and from there to a disk.
# kernels: 6.1 6.12-rt
# more kernels: 6.1-rt 6.12
# shared: yes
set -u
cd "$(mktemp -d)" || exit 1
failed=0
is() { if [ "$2" = "$3" ]; then echo "ok $1"; else echo "FAILED $1: $2, should be $3"; failed=1; fi; }

disk=/dev/vda
is 'read' "$(crtos run -- busybox dd if=$disk bs=64k count=128 iflag=direct 2>err | md5sum)" "$(head -c 8M $disk | md5sum)"
is 'what is read is all' "$(grep -c '128+0 records in' err)" 1

# A file system on a loop device takes direct writes.
modprobe -a loop ext4 || exit 1
truncate -s 64M image
mkfs.ext4 -q image && mkdir mnt && mount -o loop image mnt || exit 1
head -c 8M /dev/urandom >source
is 'write' "$(crtos run -- busybox dd if=source of=mnt/file bs=64k oflag=direct 2>&1 | head -1)" '128+0 records in'
is 'what was written' "$(md5sum <mnt/file)" "$(md5sum <source)"
umount mnt
mount -o loop image mnt || exit 1
mkdir mnt/tmp && mount --bind mnt/tmp /var/tmp || exit 1
/usr/lib/crtos-tests/abi/files >linux.out || { cat linux.out; failed=1; }
crtos run -- /usr/lib/crtos-tests/abi/files >realm.out || failed=1
is 'the program on a disk' "$(cat realm.out)" "$(cat linux.out)"
umount /var/tmp mnt
exit $failed
