#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian 13's lsuio, and its library libuio, find PCI functions of UIO: one of Linux's, and then one
# of the realm's, whose memory they map in the realm.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# shared: yes
# devices: yes
# packages: libglib2.0-0,libuio2/trixie,lsuio/trixie
# uses: edu
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
: "${edu:=}"
place=/sys/bus/pci/devices/$edu
modprobe -a uio_pci_generic crtos || exit 1
there_is() { await '[ -c "/dev/$(ls "$place/uio" 2>/dev/null)" ]' || fail 'there is no device'; }

echo uio_pci_generic >"$place/driver_override"
echo "$edu" >/sys/bus/pci/drivers_probe
there_is
lsuio -v >linux || fail "under Linux: status $?"
cat linux
grep -q '^uio0: name=uio_pci_generic' linux || fail 'it does not find a function of Linux'
echo "$edu" >"$place/driver/unbind"
echo >"$place/driver_override"

crtos up --cpus 3 --memory 256M --device "$edu" --no-reset || exit 1
there_is
lsuio -v >linux || fail "beside the realm: status $?"
timeout 60 crtos run -- lsuio -v >realm || fail "in the realm: status $?"
diff linux realm || fail 'the realm finds something else than Linux'
# By the library, the file is opened and its memory mapped.
timeout 60 crtos run -- lsuio -m >maps || fail "with maps: status $?"
cat maps
grep -q 'map\[0\]: addr=.* size=.* mmap test: OK' maps || fail 'it does not map the registers'
crtos down || fail down
exit $failed
