#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cell's device attacks, and Linux attacks it, where the IOMMU is Intel's.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# smp: 5
# tier: full
# timeout: 1200
# full: COUNT=8192
# uses: victim edu hostile-device
# Variables are those of common/hostile-device.sh.
# shellcheck disable=SC2034,SC2154
set -u
ways=(mov top narrow domain contexts root pass off)
expected=(-e 'DMAR: DRHD: handling fault' -e 'dmar_fault: .* callbacks suppressed'
	-e 'DMAR: \[' -e 'DMAR: ')
# By entries that may be in use, and those that are for functions of cells. QEMU passes the old
# format, in which a message names a CPU itself.
send_messages() {
	ask hostile $entries 0 "${COUNT:-256}" >/dev/null
	ask hostile $entries $((65536 - ${COUNT:-256})) "${COUNT:-256}" >/dev/null
	# Those of functions of cells, of which it has the first ones.
	ask hostile $entries 64512 256 >/dev/null
}
attack_by_device
