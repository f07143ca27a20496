#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As `lines`, with an IOMMU of AMD's kind.
# tier: full
# kernels: 6.12
# realm: no
# uarts: isa
# iommu: amd
# uses: lines
# timeout: 600
# `line` and `apic` are those of common/lines.sh.
# shellcheck disable=SC2154
set -u
begin
# The number of an entry of the I/O APIC's own table.
number=$(($line & 0x7ff))
[ $number -ge 496 ] && [ $number -lt 512 ] || fail "entry $number is Linux's"
overwrite
calls
finish
