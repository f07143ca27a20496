# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# What scripts with common/hostile-device.sh have in common where the IOMMU is AMD's.

ways=(mov top narrow domain pass off)
expected=(-e 'AMD-Vi: Event logged' -e 'AMD-Vi: ' -e 'callbacks suppressed')
# By entries that a message can name, and by what would pass as it is.
send_messages() {
	local id
	for id in "${ids[@]::4}"; do
		ask hostile $messages $((0xfee00000 | id << 12)) "${COUNT:-256}" >/dev/null
	done
}
