#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As dma.sh, for an IOMMU of AMD's kind: entries that Linux forges in its tables, so that a device
# reads and writes memory of the hypervisor, of a cell and of the realm, and registers that are the
# hypervisor's.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# icount: yes
# devices: yes
# iommu: amd
# timeout: 1200
# full: EVERY=yes
# uses: victim tables amd-vi
# Variables of all are those of common/tables.sh.
# shellcheck disable=SC2034,SC2154
set -u
choose "${stores[*]} ${leaves[*]} ${odd[*]} ${contexts[*]} ${refused[*]}" \
	'mov cmpxchg string large sized prepared relinked device top narrow domain table pass off none'
attack_by_tables
