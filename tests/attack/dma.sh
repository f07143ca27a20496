#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Entries that Linux forges in its tables of the IOMMU, so that a device reads and writes memory of
# the hypervisor, of a cell and of the realm, and registers that are the hypervisor's. None of them
# gets there, whatever is forged and however; Linux's own DMA goes on.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# icount: yes
# timeout: 1200
# full: EVERY=yes
# uses: victim tables vt-d
# Variables of all are those of common/tables.sh.
# shellcheck disable=SC2034,SC2154
set -u
# From the context entry: other tables, of fewer levels, with another device's domain, none. From
# the root: another table of contexts, another root. No translation at all.
contexts=(top narrow domain contexts root pass off)
refused=()
told=(top narrow domain contexts root pass)
choose "${stores[*]} ${leaves[*]} ${odd[*]} ${contexts[*]}" \
	'mov cmpxchg large relinked device top root pass off'
attack_by_tables
