#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs in containers of Podman run in the realm, if the device is passed in: with Podman's own
# seccomp profile and capabilities, and as they run in such a container under Linux.
# kernels: 6.12
# realm: no
# packages: catatonit,podman,rt-tests
# tier: full
# timeout: 1500
# uses: engine
# The script before this one has the functions.
# shellcheck disable=SC2034,SC2154
set -u
engine=podman
check_engine
exit $failed
