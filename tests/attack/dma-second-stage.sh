#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As dma.sh, for an IOMMU in scalable mode, with tables of the second stage.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# iommu: x-scalable-mode=on
# timeout: 1200
# tier: full
# full: EVERY=yes
# uses: victim tables vt-d
# Variables of all are those of common/tables.sh.
# shellcheck disable=SC2034,SC2154
set -u
# From the process's entry: other tables, of fewer levels, with another device's domain, none.
# Another process; from the directory another table of processes, and from the device's entry
# another directory. From the root as in legacy mode, and that mode. No translation at all.
contexts=(top narrow domain process processes directory contexts root legacy pass off)
# Of no use without the hypervisor: tables of a guest, and of the stage that the unit does not have.
refused=(nested stage)
told=(top narrow domain process processes directory contexts root legacy pass nested stage)
choose "${stores[*]} ${leaves[*]} ${odd[*]} ${contexts[*]} ${refused[*]}" \
	'mov top process processes directory contexts root legacy pass stage'
seldom
attack_by_tables
