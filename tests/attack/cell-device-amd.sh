#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cell's device attacks, and Linux attacks it, where the IOMMU is AMD's.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# smp: 5
# iommu: amd
# timeout: 1200
# full: COUNT=2048
# uses: victim edu hostile-device
# Variables are those of common/hostile-device.sh.
# shellcheck disable=SC2034,SC2154
set -u
ways=(mov top narrow domain pass off)
expected=(-e 'AMD-Vi: Event logged' -e 'AMD-Vi: ' -e 'callbacks suppressed')
# By entries that a message can name, and by what would pass as it is.
send_messages() {
	local id
	for id in "${ids[@]::4}"; do
		ask hostile $messages $((0xfee00000 | id << 12)) "${COUNT:-256}" >/dev/null
	done
}
attack_by_device
