#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As period.sh, with what there is in scalable mode alone.
# kernels: 6.1 6.12
# icount: yes
# turns: short
# realm: no
# iommu: x-scalable-mode=on
# timeout: 1800
# tier: full
# uses: victim period
# Variables are those of common/period.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
in_memory crtos "$PROGRAMS/periodic" chrt gojq
attacker || exit 1
crtos up --cpus 3 --memory 256M || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
find_private
dmesg --clear
during by_tables mov large prepared relinked
during by_tables top narrow domain process processes directory
during by_tables contexts root legacy pass off
crtos down || fail down
rmmod attack
complaints | grep -v -e DMAR -e 'dmar_fault: .* callbacks suppressed' && fail dmesg
exit $failed
