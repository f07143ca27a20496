#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Where boot parameters hide SVM, a CPU and x2APIC mode, `crtos check` tells of each, and
# `crtos up` is refused with a code.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# tier: full
# boot: clearcpuid=svm nr_cpus=3 nox2apic
# uses: explained
# Variables are those of common/explained.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
found 'no SVM' no-svm 'without SVM'
found 'a CPU that Linux does not know' cpus-unreachable '3 of the 4 CPUs'
found 'no x2APIC mode' x2apic 'xAPIC mode|not supported'
explained 'a CPU that Linux does not know, up' cpus-unreachable '3 of the 4 CPUs' crtos up --cpus 2 --memory 128M
explained 'no SVM, up' no-svm 'the processor offers no SVM' crtos cell create one --cpus 2 --memory 4M
exit "$failed"
