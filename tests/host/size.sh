#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The hypervisor stays small, without comments, blanks and tests: at most 5,000 lines, 7,000 with
# the partition's rules, and 9,200 with IOMMUs, those of both vendors.
set -u
# lines FOLDER...
lines() {
	find "$@" -name '*.rs' -path '*/src/*' -exec awk '
		FNR == 1 { in_tests = 0 }
		/^#\[cfg\(test\)\]/ { in_tests = 1 }
		!in_tests && !/^[[:space:]]*(\/\/.*)?$/ { count++ }
		END { print count }' {} +
}
own=$(lines hypervisor)
rules=$(lines hypervisor lib/partition)
all=$(lines hypervisor lib/partition lib/iommu)
echo "hypervisor: $own lines, $rules with lib/partition, $all with lib/iommu as well"
[ "$own" -le 5000 ] && [ "$rules" -le 7000 ] && [ "$all" -le 9200 ]
