#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member of the group crtos takes from others neither the threads of the realm nor what their
# calls say, and a file of a file system of theirs is not taken for one that is mounted later.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# uses: member
# timeout: 600
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
forge=$PROGRAMS/forge
crtos up --cpus 3 --memory 512M || exit 1

# Two file systems on one device, one after the other, which differ in what a file contains.
modprobe -a loop ext4 || fail 'no file systems'
truncate -s 8M theirs
mkfs.ext4 -q theirs && mkdir stick && mount -o loop theirs stick || fail 'no file system'
cp "$forge" stick/victim
chmod 755 stick/victim
umount stick
LC_ALL=C sed 's/GENUINE!/FORGERY!/g' theirs >mine
sleep 2
inserted() {
	losetup /dev/loop7 "$1" && mount /dev/loop7 stick || return
	as 12345 crtos run -- "$PWD/stick/victim" say
	umount stick && losetup -d /dev/loop7
}
[ -e /dev/loop7 ] || mknod /dev/loop7 b 7 7
same 'a forgery runs' FORGERY! "$(inserted mine)"
same 'a later file system is another one' GENUINE! "$(inserted theirs)"

cat >device.py <<'P'
# device.py take: takes slots until there is none, tells how many, and waits for the end of input.
# device.py read OFFSET LENGTH: tells the bytes of the channel, or the error.
import ctypes, errno, fcntl, os, struct, sys

def spawn():
    device = os.open('/dev/crtos', os.O_RDWR)
    try:
        fcntl.ioctl(device, 0xc020c720, bytearray(32))
    except OSError as error:
        os.close(device)
        return errno.errorcode[error.errno]

if sys.argv[1] == 'take':
    count = 0
    while not (error := spawn()):
        count += 1
    print(count, error, flush=True)
    sys.stdin.read()
else:
    offset, length = map(int, sys.argv[2:])
    memory = ctypes.create_string_buffer(length)
    request = struct.pack('<IIQQQ', 0, 0, offset, ctypes.addressof(memory), length)
    try:
        fcntl.ioctl(os.open('/dev/crtos', os.O_RDWR), 0x4020c712, request)
        sys.stdout.buffer.write(memory.raw)
    except OSError as error:
        print(errno.errorcode[error.errno])
P

# Somebody's call with its arguments: a write of so many bytes to a pipe that nobody reads.
mkfifo pipe
python3 -c 'import time; time.sleep(1000)' <pipe &
sleeper=$!
crtos run -- busybox dd if=/dev/zero of=pipe bs=1193046 count=1 2>/dev/null &
has() { LC_ALL=C grep -qaP '\x56\x34\x12\x00\x00\x00\x00\x00' "$1"; }
# Where the channel has its slots, and their bytes; the log follows.
slots=42560 slots_size=262144
# It waits for other calls of Linux before.
await 'python3 device.py read 0 2097152 >all; has all' || fail 'root does not find the call'
same 'the whole channel' EPERM "$(as 12345 python3 device.py read 0 2097152)"
same 'the log' EPERM "$(as 12345 python3 device.py read $((slots + slots_size)) 4096)"
same 'the trace' EPERM "$(as 12345 python3 device.py read 600000 4096)"
as 12345 python3 device.py read $slots $slots_size >slots
grep -qa busybox slots || fail 'the slots are elsewhere'
has slots && fail 'a member reads the arguments of others'
same 'a member lists the programs of others' yes \
	"$(as 12345 crtos ps | grep -qw busybox && echo yes)"
kill $sleeper
wait

# The threads of the realm: what one takes, another one may, and root.
ulimit -n 4096
mkfifo one two three
taken() { as "$1" python3 device.py take <"$2" >"took-$2" & }
taken 12345 one
exec 4>one
await 'grep -q . took-one' || fail 'nothing taken'
taken 12346 two
exec 5>two
await 'grep -q . took-two' || fail 'nothing taken'
read -r first error <took-one
[ "$first $error" = '512 EAGAIN' ] || fail "a member takes $(cat took-one)"
read -r second error <took-two
[ "$second $error" = '256 EAGAIN' ] || fail "another member takes $(cat took-two)"
same 'the root of a user namespace has the share of its user' 'refused' \
	"$(as 12345 unshare --map-root-user crtos run -- busybox true >/dev/null || echo refused)"
same 'a third member runs programs' 0 "$(as 12347 crtos run -- busybox true >/dev/null; echo $?)"
same 'root runs programs' 0 "$(crtos run -- busybox true; echo $?)"
exec 4>&- 5>&-
wait

crtos down || fail down
exit "$failed"
