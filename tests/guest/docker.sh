#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs in containers of Docker run in the realm, if the device is passed in: with Docker's own
# seccomp profile and capabilities, and as they run in such a container under Linux. Debian 12's
# Docker forbids more calls than later ones do.
# kernels: 6.12
# realm: no
# packages: docker.io,rt-tests
# tier: full
# timeout: 1500
# uses: engine
# The script before this one has the functions.
# shellcheck disable=SC2034,SC2154
set -u
engine=docker
# By itself dockerd waits for containerd for 15 s.
containerd >containerd.log 2>&1 &
await 'ctr version >/dev/null 2>&1' 3000 || { tail containerd.log; exit 1; }
dockerd --containerd /run/containerd/containerd.sock --iptables=false --bridge=none \
	>dockerd.log 2>&1 &
await 'docker info >/dev/null 2>&1' 3000 || { tail dockerd.log; exit 1; }
check_engine
exit $failed
