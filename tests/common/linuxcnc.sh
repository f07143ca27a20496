# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs of LinuxCNC.

# linuxcnc_here: has them keep their files in the current folder.
linuxcnc_here() {
	# The user that it goes on as: it refuses to stay root.
	# On a kernel without PREEMPT_RT it has no ports, unless it is told to be real-time.
	export HOME=$PWD LINUXCNC_FORCE_REALTIME=1 RTAPI_UID=65534 RTAPI_FIFO_PATH=$PWD/fifo
	chmod 777 .
}
