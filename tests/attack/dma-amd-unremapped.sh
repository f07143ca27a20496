#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As dma-unremapped.sh, for an IOMMU of AMD's kind.
# kernels: 6.1 6.12
# realm: no
# devices: yes
# iommu: amd
# boot: intremap=off
# timeout: 1200
# tier: full
# uses: victim tables amd-vi
# Variables of all are those of common/tables.sh.
# shellcheck disable=SC2034,SC2154
set -u
choose "${stores[*]} ${leaves[*]} ${odd[*]} ${contexts[*]} ${refused[*]}" 'mov top table off none' 6.*
seldom
others() { is_unremapped; }
grep ' IR-' /proc/interrupts && exit 1
attack_by_tables
