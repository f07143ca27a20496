#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As `lines`, on a machine without an IOMMU: the entry of the I/O APIC names the realm's CPU.
# tier: full
# kernels: 6.1
# realm: no
# uarts: isa
# xapic: yes
# uses: lines
# timeout: 600
# `line` and `apic` are those of common/lines.sh.
# shellcheck disable=SC2154
set -u
begin
[ $(($line >> 56 & 0xff)) = "$apic" ] || fail "the entry names another CPU: $line"
(($line >> 8 & 7 || $line >> 48 & 1)) && fail "the entry is of another kind: $line"
overwrite
calls
finish
