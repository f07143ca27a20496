#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As dma.sh, for an IOMMU in scalable mode, with tables of the first stage: those of processors.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# tier: full
# devices: yes
# iommu: x-scalable-mode=on,x-flts=on
# timeout: 1200
# full: EVERY=yes
# uses: victim tables vt-d
# Variables of all are those of common/tables.sh.
# shellcheck disable=SC2034,SC2154
set -u
# From the process's entry upwards, as in dma-second-stage.sh, where all of these are always tried.
contexts=(top domain process processes directory contexts root pass off)
# Of no use without the hypervisor: tables of a guest, and of the stage that the unit does not have,
# and of more levels.
refused=(nested stage wide)
told=(top domain process processes directory contexts root pass nested stage wide)
choose "${stores[*]} ${leaves[*]} ${odd[*]} ${contexts[*]} ${refused[*]}" \
	'mov cmpxchg large prepared top wide'
seldom
attack_by_tables
